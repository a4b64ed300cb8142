/*
 * The optimizer rule that gives every scan of a topic a source of its own, of the columns it needs.
 *
 * Owns: the replacement and the narrowing of scans; own_scans.py says why both are needed.
 * Must not know: what a scan reads.
 */
package sparklog.dataframe;

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

public class OwnScansRule extends Rule {
  /** Columns by what they cost, the cheapest first, for scans whose rows are only counted. */
  private static final String[] CHEAPEST = {
    "partition", "topic", "offset", "timestampType", "timestamp", "key", "value"
  };

  /** The name that spark.sql.optimizer.excludedRules takes. */
  public String ruleName() {
    return "SparklogOwnScans";
  }

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
    return isTopic(node)
        && ((DataSourceV2Relation) node).options().containsKey(Constants.OWN_SCAN_OPTION);
  }

  /** The scan with a source of its own, which gives the columns of the schema. */
  private static TreeNode own(DataSourceV2Relation scan, StructType schema, Object output) {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(scan.table().name());
    PythonTable table = new PythonTable(source, scan.table().name(), schema);
    java.util.Map options = new java.util.HashMap(scan.options().asCaseSensitiveMap());
    options.put(Constants.OWN_SCAN_OPTION, "true");
    Object[] fields = new Object[scan.productArity()];
    for (int i = 0; i < fields.length; i++) {
      fields[i] = scan.productElement(i);
      if (fields[i] == scan.table()) fields[i] = table;
      else if (fields[i] == scan.output()) fields[i] = output;
      else if (fields[i] == scan.options()) fields[i] = new CaseInsensitiveStringMap(options);
    }
    return scan.makeCopy(fields);
  }

  /** Gives the rule to each session of an application. */
  public static class Builder extends scala.runtime.AbstractFunction1 {
    private final OwnScansRule rule = new OwnScansRule();

    public Object apply(Object session) {
      return rule;
    }
  }

  /** Replaces scans that share their source. */
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

  /** Narrows scans.  Spark brings projections down to the scan, or to the filters on it. */
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

    /** The plan, over a scan of no more columns than it and the plans above it refer to. */
    private static QueryPlan narrowed(QueryPlan plan, List above) {
      if (isOwn(plan)) return (QueryPlan) narrowScan((DataSourceV2Relation) plan, above);
      above.add(plan.references());
      QueryPlan child = (QueryPlan) plan.children().apply(0);
      QueryPlan changed = narrowed(child, above);
      if (changed == child) return plan;
      return (QueryPlan) plan.withNewChildren(ScalaSeq.of(changed));
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
      StructField[] remaining = (StructField[]) kept.toArray(new StructField[0]);
      return own(scan, new StructType(remaining), ScalaSeq.of(output.toArray()));
    }

    private static boolean areOurs(StructField[] fields) {
      List known = Arrays.asList(Constants.ALL_COLUMNS.split("; "));
      for (int i = 0; i < fields.length; i++) {
        String column = fields[i].name() + " " + fields[i].dataType().simpleString();
        if (!fields[i].nullable() || !known.contains(column)) return false;
      }
      return true;
    }

    private static int cheapest(StructField[] fields) {
      for (int i = 0; i < CHEAPEST.length; i++)
        for (int j = 0; j < fields.length; j++)
          if (fields[j].name().equals(CHEAPEST[i])) return j;
      return 0;
    }
  }
}
