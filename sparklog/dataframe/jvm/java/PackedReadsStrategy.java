/*
 * The planner strategy that has the JVM make rows, from batches that a Python task only checks.
 *
 * Owns: which scans the strategy takes, and their plan; packed_reads.py says why.
 * Must not know: what a scan reads, what is in a batch.
 */
package sparklog.dataframe;

import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeAndComment;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import scala.collection.immutable.Seq;

public class PackedReadsStrategy extends SwitchableStrategy {
  private final CodeAndComment unpacker;

  private PackedReadsStrategy(
      SparkSession session, AtomicBoolean refused, CodeAndComment unpacker) {
    super(session, Constants.PACKED_READS_CONF, Constants.WITHOUT_PACKED_READS, refused);
    this.unpacker = unpacker;
  }

  /** Makes the strategy of each session of an application. */
  public static class Builder extends scala.runtime.AbstractFunction1 {
    private final AtomicBoolean refused = new AtomicBoolean();
    private final CodeAndComment unpacker;

    /** {@code unpacker} is the text of UnpackedRows and its classes, for executors to compile. */
    public Builder(String unpacker) {
      this.unpacker =
          new CodeAndComment(unpacker, scala.collection.immutable.Map$.MODULE$.empty());
    }

    public Object apply(Object session) {
      return new PackedReadsStrategy((SparkSession) session, refused, unpacker);
    }
  }

  /** Spark's other strategies plan everything for which this one gives an empty sequence. */
  public Seq apply(LogicalPlan plan) {
    Object below = plan;
    while (below instanceof Project || below instanceof Filter)
      below = ((LogicalPlan) below).children().apply(0);
    if (!isOwn(below) || !isWanted()) return ScalaSeq.of();
    try {
      CodeGenerator.compile(unpacker);
      Seq planned = new DataSourceV2Strategy(session()).apply(plan);
      if (planned.isEmpty()) return planned;
      Object changed = ((SparkPlan) planned.apply(0)).transformUp(new Unpacking(unpacker));
      return ScalaSeq.of(changed);
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
        && scan.relation().options().containsKey(Constants.OWN_SCAN_OPTION)
        && !leavesOutCorruptBatches(scan.relation().options().get(Constants.CORRUPT_OPTION))
        && new ReadColumns(scan.output()).known();
  }

  /** By the value of that option, which may be null. */
  private static boolean leavesOutCorruptBatches(String given) {
    return given != null && "false".equalsIgnoreCase(given.trim());
  }

  /** Puts an UnpackExec above every scan, and has the scan give batches. */
  private static class Unpacking extends scala.runtime.AbstractPartialFunction {
    private final CodeAndComment unpacker;

    Unpacking(CodeAndComment unpacker) {
      this.unpacker = unpacker;
    }

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
      return new UnpackExec((SparkPlan) scan.makeCopy(fields), scan.output(), unpacker);
    }
  }
}
