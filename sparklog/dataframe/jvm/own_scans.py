"""Gives every scan of a topic a source of its own, of the columns that it needs.

Owns: a rule for Spark's optimizer, and its installation.  Must not know what a scan reads.

Spark keeps the plan of a Python source (partitions, and the filters pushed into them) in the object
that ``load()`` made.  All scans of that DataFrame share it: the last filter that was pushed narrows
the others too, in the same query (a view that is read twice) and in later ones, and new records
stay unseen.  The rule replaces that object in every scan by a fresh one and marks the scan with an
option; only marked scans use filters.  Where the rule cannot be installed (Spark Connect), filters
are not pushed down, and a DataFrame goes on reading what was there at its first query.

Spark tells a Python source nothing of the columns that a query uses.  The rule therefore also takes
the columns that nothing above a scan refers to out of it, as Spark does for other sources; the
source gets the rest as its schema.  A scan whose rows are only counted keeps the cheapest column.
A schema of the user's that is wrong stays whole, so that the source sees what to refuse.

The rule has to be a class of the JVM.
"""

import logging
from typing import Any, Final

from sparklog.dataframe.jvm.jvm_class import SessionExtension
from sparklog.dataframe.options import OWN_SCAN_OPTION

log = logging.getLogger(__name__)

_CLASS = "SparklogOwnScans"
#: For scans whose rows are only counted: columns by what they cost, the cheapest first.
_CHEAPEST = ("partition", "topic", "offset", "timestampType", "timestamp", "key", "value")
_JAVA = r"""
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

public class CLASS extends Rule {
  public TreeNode apply(TreeNode plan) {
    return plan.transformDown(new Replacement()).transformDown(new Narrowing());
  }

  private static boolean isTopic(Object node) {
    if (!(node instanceof DataSourceV2Relation)) return false;
    DataSourceV2Relation scan = (DataSourceV2Relation) node;
    return scan.table() instanceof PythonTable
        && "sparklog".equalsIgnoreCase(scan.table().name());
  }

  private static boolean isOwn(Object node) {
    return isTopic(node) && ((DataSourceV2Relation) node).options().containsKey("MARK");
  }

  /** That scan with a source of its own, which gives the columns of the schema. */
  private static TreeNode own(DataSourceV2Relation scan, StructType schema, Object output) {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(scan.table().name());
    PythonTable table = new PythonTable(source, scan.table().name(), schema);
    java.util.Map options = new java.util.HashMap(scan.options().asCaseSensitiveMap());
    options.put("MARK", "true");
    Object[] fields = new Object[scan.productArity()];
    for (int i = 0; i < fields.length; i++) {
      fields[i] = scan.productElement(i);
      if (fields[i] == scan.table()) fields[i] = table;
      else if (fields[i] == scan.output()) fields[i] = output;
      else if (fields[i] == scan.options()) fields[i] = new CaseInsensitiveStringMap(options);
    }
    return scan.makeCopy(fields);
  }

  private static Object sequence(List items) {
    return CollectionConverters.asScala(items).toSeq();
  }

  public static class Builder extends scala.runtime.AbstractFunction1 {
    private final CLASS rule = new CLASS();

    public Object apply(Object session) {
      return rule;
    }
  }

  private static class Replacement extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return isTopic(node) && !isOwn(node);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      DataSourceV2Relation scan = (DataSourceV2Relation) node;
      return own(scan, ((PythonTable) scan.table()).schema(), scan.output());
    }
  }

  /** Spark brings projections down to the scan, or to the filters on it. */
  private static class Narrowing extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      if (!(node instanceof Project)) return false;
      Object below = ((Project) node).child();
      while (below instanceof Filter) below = ((Filter) below).child();
      return isOwn(below);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      return narrowed((QueryPlan) node, new ArrayList());
    }

    /** The plan over a scan of no more than what it refers to, and those above it. */
    private static QueryPlan narrowed(QueryPlan plan, List above) {
      if (isOwn(plan)) return (QueryPlan) narrowScan((DataSourceV2Relation) plan, above);
      above.add(plan.references());
      QueryPlan child = (QueryPlan) plan.children().apply(0);
      QueryPlan changed = narrowed(child, above);
      if (changed == child) return plan;
      return (QueryPlan) plan.withNewChildren(
          (scala.collection.immutable.Seq) sequence(Arrays.asList(new Object[] {changed})));
    }

    private static TreeNode narrowScan(DataSourceV2Relation scan, List above) {
      StructField[] fields = ((PythonTable) scan.table()).schema().fields();
      if (fields.length != scan.output().size() || !areOurs(fields)) return scan;
      List kept = new ArrayList();
      List output = new ArrayList();
      for (int i = 0; i < fields.length; i++) {
        Object column = scan.output().apply(i);
        boolean used = false;
        for (int j = 0; j < above.size(); j++)
          used |= ((AttributeSet) above.get(j)).contains((NamedExpression) column);
        if (!used) continue;
        kept.add(fields[i]);
        output.add(column);
      }
      if (kept.isEmpty()) {
        int cheapest = cheapest(fields);
        kept.add(fields[cheapest]);
        output.add(scan.output().apply(cheapest));
      }
      if (kept.size() == fields.length) return scan;
      StructField[] left = (StructField[]) kept.toArray(new StructField[0]);
      return own(scan, new StructType(left), sequence(output));
    }

    private static boolean areOurs(StructField[] fields) {
      List known = Arrays.asList("COLUMNS".split("; "));
      for (int i = 0; i < fields.length; i++) {
        String column = fields[i].name() + " " + fields[i].dataType().simpleString();
        if (!fields[i].nullable() || !known.contains(column)) return false;
      }
      return true;
    }

    private static int cheapest(StructField[] fields) {
      String[] names = "CHEAPEST".split(" ");
      for (int i = 0; i < names.length; i++)
        for (int j = 0; j < fields.length; j++)
          if (fields[j].name().equals(names[i])) return j;
      return 0;
    }
  }
}
"""
_EXTENSION: Final = SessionExtension(
    _CLASS, "injectOptimizerRule", "filters on topics are not pushed down", log
)


def install(spark: Any) -> bool:
    """Add the rule to the sessions of this application; False where that is not possible."""
    return _EXTENSION.install(spark, _java)


def _java() -> str:
    from sparklog.dataframe.schema import read_schema

    columns = [f"{f.name} {f.dataType.simpleString()}" for f in read_schema(True).fields]
    text = _JAVA.replace("CLASS", _CLASS).replace("MARK", OWN_SCAN_OPTION)
    return text.replace("CHEAPEST", " ".join(_CHEAPEST)).replace("COLUMNS", "; ".join(columns))
