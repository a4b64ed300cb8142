/*
 * Spark's generated loop over the steps below a write, with the packer in it.
 *
 * Owns: the metrics of the loop, which stay those of the loop that Spark's plan shows.
 * Must not know: how rows are packed.
 */
package sparklog.dataframe;

import org.apache.spark.sql.execution.WholeStageCodegenExec;

class FusedLoop extends WholeStageCodegenExec {
  private final WholeStageCodegenExec original;

  FusedLoop(WholeStageCodegenExec original, FusedPackExec pack) {
    super(pack, original.codegenStageId());
    this.original = original;
  }

  public scala.collection.immutable.Map metrics() {
    return original.metrics();
  }
}
