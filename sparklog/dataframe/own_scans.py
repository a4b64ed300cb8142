"""Gives every scan of a topic a source of its own, inside Spark's optimizer.

Owns: a rule for Spark's optimizer, and its installation.  Must not know what a scan reads.

Spark keeps the plan of a Python source (partitions, and the filters pushed into them) in the object
that ``load()`` made.  All scans of that DataFrame share it: the last filter that was pushed narrows
the others too, in the same query (a view that is read twice) and in later ones, and new records
stay unseen.  The rule replaces that object in every scan by a fresh one and marks the scan with an
option; only marked scans use filters.  Where the rule cannot be installed (Spark Connect), filters
are not pushed down, and a DataFrame goes on reading what was there at its first query.

The rule has to be a class of the JVM.
"""

import logging
from typing import Any
from weakref import WeakSet

from sparklog.dataframe.jvm_class import new_instance
from sparklog.dataframe.options import OWN_SCAN_OPTION

log = logging.getLogger(__name__)

_CLASS = "SparklogOwnScans"
_JAVA = r"""
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class CLASS extends Rule {
  public TreeNode apply(TreeNode plan) {
    return plan.transformDown(new Replacement());
  }

  public static class Builder extends scala.runtime.AbstractFunction1 {
    private final CLASS rule = new CLASS();

    public Object apply(Object session) {
      return rule;
    }
  }

  private static class Replacement extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      if (!(node instanceof DataSourceV2Relation)) return false;
      DataSourceV2Relation scan = (DataSourceV2Relation) node;
      return scan.table() instanceof PythonTable
          && "sparklog".equalsIgnoreCase(scan.table().name())
          && !scan.options().containsKey("MARK");
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      DataSourceV2Relation scan = (DataSourceV2Relation) node;
      PythonDataSourceV2 source = new PythonDataSourceV2();
      source.setShortName(scan.table().name());
      PythonTable table = new PythonTable(source, scan.table().name(), scan.table().schema());
      java.util.Map options = new java.util.HashMap(scan.options().asCaseSensitiveMap());
      options.put("MARK", "true");
      Object[] fields = new Object[scan.productArity()];
      for (int i = 0; i < fields.length; i++) {
        fields[i] = scan.productElement(i);
        if (fields[i] == scan.table()) fields[i] = table;
        else if (fields[i] == scan.options()) fields[i] = new CaseInsensitiveStringMap(options);
      }
      return scan.makeCopy(fields);
    }
  }
}
"""
#: Applications whose sessions have the rule.
_installed: "WeakSet[Any]" = WeakSet()


def install(spark: Any) -> bool:
    """Add the rule to the sessions of this application; False where that is not possible."""
    try:
        context = spark.sparkContext
    except Exception as error:  # Spark Connect
        log.info("filters on topics are not pushed down: %s", error)
        return False
    try:
        if context not in _installed:
            java = _JAVA.replace("CLASS", _CLASS).replace("MARK", OWN_SCAN_OPTION)
            builder = new_instance(context, f"{_CLASS}$Builder", java)
            spark._jsparkSession.extensions().injectOptimizerRule(builder)
            _installed.add(context)
    except Exception as error:  # whatever another version of Spark lacks
        log.warning("filters on topics are not pushed down: %s", error)
        return False
    return True
