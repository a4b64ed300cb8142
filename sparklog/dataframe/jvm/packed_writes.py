"""Has Spark pack the rows of a write before they come to Python.

Owns: a strategy for Spark's planner, its installation, and which writes it takes.  Must not know
how records are laid out, nor how they travel.

A row that goes through Arrow to Python and becomes a record there costs more than all the rest of a
write.  The strategy puts a step of its own under such writes, whose rows are pieces: records of one
batch each.  It marks the write with an option that says the schema of the rows, so that the
source checks what it always checks.  Writes that the packer cannot do exactly as Python does
are left alone: those with more columns than ``key``, ``value`` and ``timestamp``, or with a
partitioner; and those of rows that Python makes, because the packer has a task say how many rows go
to Python at once (``record_packer``), and threads of other steps may read that before it is taken
back.  So are rows with keys that the JVM does not send (``piece_destination``): only who asks for
the topic's partitions can divide them.  Where the strategy cannot be installed (Spark Connect), all
writes are.

The strategy has to be a class of the JVM.  The packer is compiled there before the first write,
so that a Spark that cannot do it shows while the write can still be planned as usual.  Where the
rows come out of code that Spark generates, it is part of that code (``fused_packer``).
"""

import json
import logging
from typing import Any, Final

from sparklog.dataframe.jvm.fused_packer import FUSED_JAVA
from sparklog.dataframe.jvm.jvm_class import PLANNER_STRATEGY, SessionExtension, filled
from sparklog.dataframe.jvm.packed_rows import packed_rows_java
from sparklog.dataframe.jvm.piece_destination import destination_java
from sparklog.dataframe.jvm.piece_outlet import ROW_COLUMNS
from sparklog.dataframe.jvm.record_packer import packer_java
from sparklog.dataframe.options import BATCH_BYTES, PACKED_OPTION
from sparklog.wire.records.batch import BATCH_OVERHEAD

log = logging.getLogger(__name__)

#: Spark's setting that turns it off: ``false``.
PACKED_CONF: Final = "spark.sparklog.packed.writes"
#: Spark's setting that has Python send the pieces: ``false``.
DIRECT_CONF: Final = "spark.sparklog.direct.writes"
#: Values of ``kafka.batch.size`` that pieces are made for.
BATCH_BYTES_MIN: Final = 16 * 1024
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024

_CLASS: Final = "SparklogPackedWrites"
_JAVA: Final = r"""
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeAndComment;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.execution.CodegenSupport;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.WholeStageCodegenEvaluatorFactory;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy;
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWrite;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

public class CLASS extends SparkStrategy {
  private static final String PACKER_TEXT = PACKER_JAVA;
  private static final StructType PIECES = StructType.fromDDL("ROW_COLUMNS");
  private static final CodeAndComment PACKER =
      new CodeAndComment(PACKED_ROWS_JAVA, scala.collection.immutable.Map$.MODULE$.empty());
PLANNER_STRATEGY
  /** Spark's other strategies plan what this one does not. */
  public Seq apply(LogicalPlan plan) {
    if (!isOurs(plan) || !isWanted()) return sequence();
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(
        CollectionConverters.asJava(((AppendData) plan).writeOptions()));
    StructType schema = ((V2WriteCommand) plan).query().schema();
    Packing packing = Packing.of(schema, options);
    if (packing == null || hasPython(((V2WriteCommand) plan).query())) return sequence();
    if (!"false".equalsIgnoreCase(session.conf().get("DIRECT", "true").trim()))
      packing.destination = Destination.of(options);
    if (packing.key >= 0 && packing.destination == null) return sequence();
    try {
      CodeGenerator.compile(PACKER);
      packing.factory(null, null);
      return planned(plan, schema, options, packing);
    } catch (LinkageError error) {
      return refuse(error);
    } catch (Exception error) {
      return refuse(error);
    }
  }

  private static boolean isOurs(LogicalPlan plan) {
    if (!(plan instanceof AppendData)) return false;
    scala.Option write = ((AppendData) plan).write();
    Object target = ((V2WriteCommand) plan).table();
    if (write.isEmpty() || !(write.get() instanceof PythonWrite)
        || !(target instanceof DataSourceV2Relation)) return false;
    DataSourceV2Relation relation = (DataSourceV2Relation) target;
    return relation.table() instanceof PythonTable
        && "sparklog".equalsIgnoreCase(relation.table().name());
  }

  /** A step or an expression in Python: in the same task it would see what the packer sets. */
  private static boolean hasPython(TreeNode node) {
    String name = node.getClass().getSimpleName();
    if (name.contains("Python") || name.contains("Pandas") || name.contains("Arrow")) return true;
    if (node instanceof QueryPlan && anyHasPython(((QueryPlan) node).expressions())) return true;
    return anyHasPython(node.children());
  }

  private static boolean anyHasPython(Seq nodes) {
    Iterator each = CollectionConverters.asJava(nodes).iterator();
    while (each.hasNext()) if (hasPython((TreeNode) each.next())) return true;
    return false;
  }

  /** What Spark makes of the write of pieces, over the step that makes them. */
  private Seq planned(
      LogicalPlan plan, StructType schema, CaseInsensitiveStringMap options, Packing packing) {
    PythonTable table =
        (PythonTable) ((DataSourceV2Relation) ((V2WriteCommand) plan).table()).table();
    Object write = ((AppendData) plan).write();
    Object[] fields = new Object[plan.productArity()];
    for (int i = 0; i < fields.length; i++) {
      fields[i] = plan.productElement(i);
      if (fields[i] == write)
        fields[i] = new scala.Some(
            table.newWriteBuilder(new OfPieces(schema, options, packing.destination)).build());
    }
    SparkStrategy usual = new DataSourceV2Strategy(session);
    SparkPlan exec = (SparkPlan) usual.apply((LogicalPlan) plan.makeCopy(fields)).apply(0);
    SparkPlan rows = (SparkPlan) exec.children().apply(0);
    return sequence(exec.withNewChildren(sequence(new Pack(rows, packing))));
  }

  /** What the packer has to know of a write. */
  public static class Packing {
    private int value = -1;
    private int timestamp = -1;
    private int key = -1;
    private boolean textValue;
    private boolean textKey;
    private int limit;
    /** What PieceSender takes; null: Python sends. */
    private String[] destination;

    /** Null: this write is not for the packer. */
    static Packing of(StructType schema, CaseInsensitiveStringMap options) {
      Packing found = new Packing();
      StructField[] fields = schema.fields();
      for (int i = 0; i < fields.length; i++) {
        String name = fields[i].name();
        String type = fields[i].dataType().simpleString();
        boolean bytes = type.equals("binary") || type.equals("string");
        if (found.value < 0 && bytes && name.equals("value")) {
          found.value = i;
          found.textValue = type.equals("string");
        } else if (found.key < 0 && bytes && name.equals("key")) {
          found.key = i;
          found.textKey = type.equals("string");
        } else if (found.timestamp < 0 && type.equals("timestamp") && name.equals("timestamp")) {
          found.timestamp = i;
        } else {
          return null;
        }
      }
      if (found.value < 0 || !options.containsKey("topic")) return null;
      String[] others = "OTHER_OPTIONS".split(" ");
      for (int i = 0; i < others.length; i++) if (options.containsKey(others[i])) return null;
      try {
        String given = options.get("kafka.batch.size");
        int size = given == null ? BATCH_BYTES_DEFAULT : Integer.parseInt(given);
        if (size < BATCH_BYTES_MIN || size > BATCH_BYTES_MAX) return null;
        found.limit = size - BATCH_OVERHEAD;
      } catch (NumberFormatException error) {
        return null;
      }
      return found;
    }

    /** Other versions of Spark take the text itself. */
    WholeStageCodegenEvaluatorFactory factory(SQLMetric taken, SQLMetric written) {
      Object[] references = {
        Integer.valueOf(value), Integer.valueOf(timestamp), Integer.valueOf(key),
        Boolean.valueOf(textValue), Boolean.valueOf(textKey), Integer.valueOf(limit), written,
        destination
      };
      java.lang.reflect.Constructor made =
          WholeStageCodegenEvaluatorFactory.class.getConstructors()[0];
      boolean plain = made.getParameterTypes()[0].isInstance(PACKER);
      Object code = plain ? (Object) PACKER : new scala.util.Right(PACKER);
      try {
        return (WholeStageCodegenEvaluatorFactory)
            made.newInstance(new Object[] {code, taken, references});
      } catch (ReflectiveOperationException error) {
        throw new IllegalStateException(error);
      }
    }

    /** The step by itself. */
    RDD packed(RDD rows, SQLMetric taken, SQLMetric written) {
      return rows.mapPartitionsWithEvaluator(
          factory(taken, written), scala.reflect.ClassTag$.MODULE$.apply(InternalRow.class));
    }

    public String toString() {
      return "value #" + value + ", timestamp #" + timestamp + ", key #" + key + ", " + limit
          + " bytes";
    }
  }

DESTINATION_JAVA
  /** What the source is told: it gets pieces, of rows of that schema. */
  private static class OfPieces implements LogicalWriteInfo {
    private final String id = java.util.UUID.randomUUID().toString();
    private final CaseInsensitiveStringMap options;

    /** Python may have to go on where the JVM was sending. */
    OfPieces(StructType schema, CaseInsensitiveStringMap given, String[] destination) {
      Map all = new HashMap(given.asCaseSensitiveMap());
      all.put("MARK", schema.json());
      if (destination != null && !given.containsKey("kafka.bootstrap.servers"))
        all.put("kafka.bootstrap.servers", destination[0]);
      options = new CaseInsensitiveStringMap(all);
    }

    public CaseInsensitiveStringMap options() {
      return options;
    }

    public String queryId() {
      return id;
    }

    public StructType schema() {
      return PIECES;
    }
  }

FUSED_JAVA
  /** A command to Spark, as the write above it is: adaptive plans begin below. */
  public static class Pack extends V2CommandExec {
    private final SparkPlan child;
    private final Packing packing;
    private final Seq columns = DataTypeUtils.toAttributes(PIECES);
    private SQLMetric taken;
    private SQLMetric written;

    public Pack(SparkPlan child, Packing packing) {
      this.child = child;
      this.packing = packing;
    }

    /** The write above counts pieces. */
    public scala.collection.immutable.Map metrics() {
      if (written == null) {
        taken = SQLMetrics.createMetric(sparkContext(), "duration");
        written = SQLMetrics.createMetric(sparkContext(), "number of records");
      }
      scala.collection.immutable.Map none = scala.collection.immutable.Map$.MODULE$.empty();
      return (scala.collection.immutable.Map) none.updated("numRecords", written);
    }

    /** Rows that come out of generated code never become rows. */
    public RDD doExecute() {
      metrics();
      SparkPlan rows = child instanceof AdaptiveSparkPlanExec
          ? ((AdaptiveSparkPlanExec) child).finalPhysicalPlan() : child;
      if (!(rows instanceof WholeStageCodegenExec))
        return packing.packed(rows.execute(), taken, written);
      WholeStageCodegenExec loop = (WholeStageCodegenExec) rows;
      try {
        return new FusedLoop(loop, new FusedPack(loop, packing, taken, written)).execute();
      } catch (LinkageError error) {
        // A Spark whose steps give code in another way.
        return packing.packed(rows.execute(), taken, written);
      }
    }

    public Seq run() {
      throw new UnsupportedOperationException("the write runs");
    }

    public Seq output() {
      return columns;
    }

    public Seq children() {
      return sequence(child);
    }

    public TreeNode withNewChildrenInternal(scala.collection.immutable.IndexedSeq replaced) {
      return new Pack((SparkPlan) replaced.apply(0), packing);
    }

    public String nodeName() {
      return "PackRecords";
    }

    public int productArity() {
      return 2;
    }

    public Object productElement(int index) {
      return index == 0 ? (Object) child : packing;
    }

    public boolean canEqual(Object other) {
      return other instanceof Pack;
    }
  }
}
"""
#: Writes with them go the other way.
_OTHER_OPTIONS: Final = (
    "partitioner",
    "kafka.partitioner",
    "kafka.partitioner.class",
    "kafka.partitioner.ignore.keys",
)
_WITHOUT: Final = "writes are not packed in the JVM"
_EXTENSION: Final = SessionExtension(_CLASS, "injectPlannerStrategy", _WITHOUT, log)


def install(spark: Any) -> bool:
    """Give the strategy to the sessions of this application; False where that is not possible."""
    return _EXTENSION.install(spark, _java)


def _java() -> str:
    named = {
        "PLANNER_STRATEGY": PLANNER_STRATEGY,
        "FUSED_JAVA": FUSED_JAVA,
        "DESTINATION_JAVA": destination_java(),
        "CLASS": _CLASS,
        "SETTING": PACKED_CONF,
        "DIRECT": DIRECT_CONF,
        "WITHOUT": _WITHOUT,
        "MARK": PACKED_OPTION,
        "ROW_COLUMNS": ", ".join(" ".join(column) for column in ROW_COLUMNS),
        "OTHER_OPTIONS": " ".join(_OTHER_OPTIONS),
        "BATCH_BYTES_DEFAULT": str(BATCH_BYTES),
        "BATCH_BYTES_MIN": str(BATCH_BYTES_MIN),
        "BATCH_BYTES_MAX": str(BATCH_BYTES_MAX),
        "BATCH_OVERHEAD": str(BATCH_OVERHEAD),
        "PACKED_ROWS_JAVA": json.dumps(packed_rows_java()),
        "PACKER_JAVA": json.dumps(packer_java()),
    }
    return filled(_JAVA, named)
