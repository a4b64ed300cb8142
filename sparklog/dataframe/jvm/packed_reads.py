"""Has rows of a topic made by the JVM, from record batches that a Python task only checks.

Owns: a strategy for Spark's planner, and its installation.  Must not know what a scan reads, or
what is in a batch.

Rows that Python makes cost twice: it takes records apart by the column, and Spark takes the columns
apart by the row.  Where the strategy can, it puts an operator above the scan, which decodes
(``record_unpacker``), and tells every partition of the scan to give batches instead of rows.  A
partition says what it gives in a text that the JVM finds in the pickled partition, so batches are
given to the operator alone.  It can where the scan is marked as one of its own (``own_scans``), all
columns are ours and may hold nulls, as they do unless a schema says otherwise, the headers are not
among them, and one of them has bytes: that one carries the batches.  Reads that leave out what
cannot be decoded (``failOnCorruptBatch=false``) are Python's, so that one decoder decides what that
is.  Filters are pushed into the
scan as always, before all this.

Where it cannot, or cannot be installed (Spark Connect), Python makes the rows.

The strategy and its operator live in the driver's JVM alone: executors get the text of the decoder,
in a class of Spark's, and compile it as they compile what Spark generates.
"""

import json
import logging
from typing import Any, Final

from sparklog.dataframe.corrupt_batches import OPTION as CORRUPT_OPTION
from sparklog.dataframe.jvm.jvm_class import PLANNER_STRATEGY, SessionExtension, filled
from sparklog.dataframe.jvm.record_unpacker import COLUMNS, GIVE_BATCHES, GIVE_ROWS, UNPACKER
from sparklog.dataframe.options import OWN_SCAN_OPTION

log = logging.getLogger(__name__)

#: Spark's setting that turns it off: ``false``.
PACKED_CONF: Final = "spark.sparklog.packed.reads"

_CLASS: Final = "SparklogPackedReads"
_JAVA: Final = r"""
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeAndComment;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition$;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.WholeStageCodegenEvaluatorFactory;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

public class CLASS extends SparkStrategy {
  static final CodeAndComment UNPACKER =
      new CodeAndComment(UNPACKER_JAVA, scala.collection.immutable.Map$.MODULE$.empty());
PLANNER_STRATEGY
  /** Spark's other strategies plan what this one does not. */
  public Seq apply(LogicalPlan plan) {
    Object below = plan;
    while (below instanceof Project || below instanceof Filter)
      below = ((LogicalPlan) below).children().apply(0);
    if (!isOwn(below) || !isWanted()) return sequence();
    try {
      CodeGenerator.compile(UNPACKER);
      Seq planned = new DataSourceV2Strategy(session).apply(plan);
      if (planned.isEmpty()) return planned;
      Object changed = ((SparkPlan) planned.apply(0)).transformUp(new Unpacking());
      return sequence(changed);
    } catch (LinkageError error) {
      return refuse(error);
    } catch (Exception error) {
      return refuse(error);
    }
  }

  private static boolean isOwn(Object node) {
    if (!(node instanceof DataSourceV2ScanRelation)) return false;
    DataSourceV2ScanRelation scan = (DataSourceV2ScanRelation) node;
    return scan.scan() instanceof PythonScan
        && "sparklog".equalsIgnoreCase(scan.relation().table().name())
        && scan.relation().options().containsKey("MARK")
        && !"false".equalsIgnoreCase(trimmed(scan.relation().options().get("FAIL")))
        && new Columns(scan.output()).known();
  }

  private static String trimmed(String text) {
    return text == null ? "" : text.trim();
  }

  private static class Unpacking extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof BatchScanExec && ((BatchScanExec) node).scan() instanceof PythonScan;
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      BatchScanExec scan = (BatchScanExec) node;
      Object[] fields = new Object[scan.productArity()];
      for (int i = 0; i < fields.length; i++) {
        fields[i] = scan.productElement(i);
        if (fields[i] == scan.scan()) fields[i] = new BatchesScan(scan.scan());
      }
      return new Unpack((SparkPlan) scan.makeCopy(fields), scan.output());
    }
  }

  /** Which of our columns there are, and the one that carries batches. */
  static class Columns {
    final int[] kinds;
    int carrier = -1;
    private boolean ours = true;

    Columns(Seq output) {
      List types = Arrays.asList("TYPES".split("; "));
      kinds = new int[output.size()];
      for (int i = 0; i < kinds.length; i++) {
        AttributeReference column = (AttributeReference) output.apply(i);
        kinds[i] = types.indexOf(column.name() + " " + column.dataType().simpleString());
        ours &= kinds[i] >= 0 && column.nullable();
        if (column.dataType().simpleString().equals("binary")) carrier = i;
      }
    }

    boolean known() {
      return ours && carrier >= 0;
    }
  }

  /** The scan of Python's source, of which every partition gives batches. */
  static class BatchesScan implements Scan, Batch {
    private static final byte[] ROWS = "GIVE_ROWS".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] BATCHES = "GIVE_BATCHES".getBytes(StandardCharsets.US_ASCII);
    private final Scan rows;
    private final Batch batch;

    BatchesScan(Scan rows) {
      this.rows = rows;
      this.batch = rows.toBatch();
    }

    public StructType readSchema() {
      return rows.readSchema();
    }

    public String description() {
      return rows.description();
    }

    public Scan.ColumnarSupportMode columnarSupportMode() {
      return rows.columnarSupportMode();
    }

    public CustomMetric[] supportedCustomMetrics() {
      return rows.supportedCustomMetrics();
    }

    public Batch toBatch() {
      return this;
    }

    public PartitionReaderFactory createReaderFactory() {
      return batch.createReaderFactory();
    }

    public InputPartition[] planInputPartitions() {
      InputPartition[] planned = batch.planInputPartitions();
      InputPartition[] told = new InputPartition[planned.length];
      for (int i = 0; i < told.length; i++) {
        PythonInputPartition partition = (PythonInputPartition) planned[i];
        told[i] = new PythonInputPartition(partition.index(), told(partition.pickedPartition()));
      }
      return told;
    }

    private static byte[] told(byte[] pickled) {
      for (int i = 0; i + ROWS.length <= pickled.length; i++) {
        if (!Arrays.equals(Arrays.copyOfRange(pickled, i, i + ROWS.length), ROWS)) continue;
        byte[] changed = (byte[]) pickled.clone();
        System.arraycopy(BATCHES, 0, changed, i, BATCHES.length);
        return changed;
      }
      throw new IllegalStateException("a partition does not say what it gives");
    }
  }

  public static class Unpack extends SparkPlan {
    private final SparkPlan child;
    private final Seq columns;
    private scala.collection.immutable.Map metrics;

    public Unpack(SparkPlan child, Seq columns) {
      this.child = child;
      this.columns = columns;
    }

    public RDD doExecute() {
      Columns found = new Columns(columns);
      SQLMetric taken = SQLMetrics.createMetric(sparkContext(), "milliseconds");
      Object[] references = {
        Integer.valueOf(found.carrier), found.kinds, metrics().apply("numOutputRows")
      };
      WholeStageCodegenEvaluatorFactory factory =
          new WholeStageCodegenEvaluatorFactory(new scala.util.Right(UNPACKER), taken, references);
      return child.execute().mapPartitionsWithEvaluator(
          factory, scala.reflect.ClassTag$.MODULE$.apply(InternalRow.class));
    }

    public scala.collection.immutable.Map metrics() {
      if (metrics == null) metrics = (scala.collection.immutable.Map)
          scala.collection.immutable.Map$.MODULE$.empty().updated(
              "numOutputRows", SQLMetrics.createMetric(sparkContext(), "number of output rows"));
      return metrics;
    }

    public Partitioning outputPartitioning() {
      if (child.outputPartitioning() == SinglePartition$.MODULE$) return SinglePartition$.MODULE$;
      return super.outputPartitioning();
    }

    public Seq output() {
      return columns;
    }

    public Seq children() {
      return sequence(child);
    }

    public TreeNode withNewChildrenInternal(scala.collection.immutable.IndexedSeq replaced) {
      return new Unpack((SparkPlan) replaced.apply(0), columns);
    }

    public int productArity() {
      return 2;
    }

    public Object productElement(int index) {
      return index == 0 ? child : columns;
    }

    public boolean canEqual(Object other) {
      return other instanceof Unpack;
    }

    /** Tasks of operators that bring their plan along do not look at it, nor do they know this. */
    protected Object writeReplace() {
      return child;
    }
  }
}
"""
_WITHOUT: Final = "rows are made by Python"
_EXTENSION: Final = SessionExtension(_CLASS, "injectPlannerStrategy", _WITHOUT, log)


def install(spark: Any) -> bool:
    """Add the strategy to the sessions of this application; False where that is not possible."""
    return _EXTENSION.install(spark, _java)


def _java() -> str:
    from sparklog.dataframe.schema import read_schema

    types = {field.name: field.dataType.simpleString() for field in read_schema(False).fields}
    named = {
        "PLANNER_STRATEGY": PLANNER_STRATEGY,
        "CLASS": _CLASS,
        "SETTING": PACKED_CONF,
        "WITHOUT": _WITHOUT,
        "MARK": OWN_SCAN_OPTION,
        "FAIL": CORRUPT_OPTION,
        "TYPES": "; ".join(f"{name} {types[name]}" for name in COLUMNS),
        "GIVE_ROWS": GIVE_ROWS,
        "GIVE_BATCHES": GIVE_BATCHES,
        "UNPACKER_JAVA": json.dumps(UNPACKER),
    }
    return filled(_JAVA, named)
