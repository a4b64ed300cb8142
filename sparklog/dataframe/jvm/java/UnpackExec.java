/*
 * The step of a plan that makes rows of record batches.
 *
 * Owns: the operator above a BatchesScan.
 * Must not know: which scans have such an operator, how batches are decoded.
 *
 * The operator lives in the driver alone.  Executors get the text of the decoder, in a class of
 * Spark's, and compile it as they compile what Spark generates.
 */
package sparklog.dataframe;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeAndComment;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.WholeStageCodegenEvaluatorFactory;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.collection.immutable.Seq;

public class UnpackExec extends SparkPlan {
  private final SparkPlan child;
  private final Seq columns;
  private final CodeAndComment unpacker;
  private scala.collection.immutable.Map metrics;

  public UnpackExec(SparkPlan child, Seq columns, CodeAndComment unpacker) {
    this.child = child;
    this.columns = columns;
    this.unpacker = unpacker;
  }

  public RDD doExecute() {
    ReadColumns readColumns = new ReadColumns(columns);
    SQLMetric duration = SQLMetrics.createMetric(sparkContext(), "milliseconds");
    Object[] references = {
      Integer.valueOf(readColumns.carrier), readColumns.kinds, metrics().apply("numOutputRows")
    };
    WholeStageCodegenEvaluatorFactory factory =
        new WholeStageCodegenEvaluatorFactory(new scala.util.Right(unpacker), duration, references);
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
    return ScalaSeq.of(child);
  }

  public SparkPlan withNewChildrenInternal(scala.collection.immutable.IndexedSeq replaced) {
    return new UnpackExec((SparkPlan) replaced.apply(0), columns, unpacker);
  }

  /** The arguments of the constructor behind the elements of the product. */
  public Seq otherCopyArgs() {
    return ScalaSeq.of(unpacker);
  }

  public int productArity() {
    return 2;
  }

  public Object productElement(int index) {
    return index == 0 ? child : columns;
  }

  public boolean canEqual(Object other) {
    return other instanceof UnpackExec;
  }

  /**
   * Some operators bring their plan along in their tasks, which do not look at it.  Executors do
   * not have this class.
   */
  protected Object writeReplace() {
    return child;
  }
}
