/*
 * Spark's generated loop over the steps below a write, with the packer in it.
 *
 * Owns: nothing but the loop's name for its metrics: Spark counts its time as before.
 * Must not know: the packer.
 */
package sparklog.dataframe;

import org.apache.spark.sql.execution.WholeStageCodegenExec;

class FusedLoop extends WholeStageCodegenExec {
  private final WholeStageCodegenExec usual;

  FusedLoop(WholeStageCodegenExec usual, FusedPackExec pack) {
    super(pack, usual.codegenStageId());
    this.usual = usual;
  }

  public scala.collection.immutable.Map metrics() {
    return usual.metrics();
  }
}
