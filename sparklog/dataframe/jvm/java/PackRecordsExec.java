/*
 * The step of a plan that makes pieces of rows.
 *
 * Owns: the operator under a write, and the choice between the packer inside Spark's generated loop
 * and the packer as a step of its own.
 * Must not know: which writes are packed, how records are laid out.
 *
 * To Spark the operator is a command, as the write above it is, because adaptive plans begin below
 * commands.
 */
package sparklog.dataframe;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.collection.immutable.Seq;

public class PackRecordsExec extends V2CommandExec {
  private final SparkPlan child;
  private final Packing packing;
  private final Seq columns = DataTypeUtils.toAttributes(PiecesWriteInfo.PIECES);
  private SQLMetric duration;
  private SQLMetric recordsWritten;

  public PackRecordsExec(SparkPlan child, Packing packing) {
    this.child = child;
    this.packing = packing;
  }

  /** Counts records; the write above counts pieces. */
  public scala.collection.immutable.Map metrics() {
    if (recordsWritten == null) {
      duration = SQLMetrics.createMetric(sparkContext(), "duration");
      recordsWritten = SQLMetrics.createMetric(sparkContext(), "number of records");
    }
    scala.collection.immutable.Map none = scala.collection.immutable.Map$.MODULE$.empty();
    return (scala.collection.immutable.Map) none.updated("numRecords", recordsWritten);
  }

  /** Packs inside the generated loop where there is one: its rows never become UnsafeRows. */
  public RDD doExecute() {
    metrics();
    SparkPlan rows = child instanceof AdaptiveSparkPlanExec
        ? ((AdaptiveSparkPlanExec) child).finalPhysicalPlan() : child;
    if (!(rows instanceof WholeStageCodegenExec))
      return packing.packed(rows.execute(), duration, recordsWritten);
    WholeStageCodegenExec loop = (WholeStageCodegenExec) rows;
    try {
      FusedPackExec pack = new FusedPackExec(loop, packing, duration, recordsWritten);
      return new FusedLoop(loop, pack).execute();
    } catch (LinkageError error) {
      // In this version of Spark, steps give code in another way.
      return packing.packed(rows.execute(), duration, recordsWritten);
    }
  }

  public Seq run() {
    throw new UnsupportedOperationException("the write runs");
  }

  public Seq output() {
    return columns;
  }

  public Seq children() {
    return ScalaSeq.of(child);
  }

  public SparkPlan withNewChildrenInternal(scala.collection.immutable.IndexedSeq replaced) {
    return new PackRecordsExec((SparkPlan) replaced.apply(0), packing);
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
    return other instanceof PackRecordsExec;
  }
}
