/*
 * The texts of the packer that executors compile.
 *
 * Owns: both texts, as java_sources.py makes them.
 * Must not know: what the texts say.
 */
package sparklog.dataframe;

import org.apache.spark.sql.catalyst.expressions.codegen.CodeAndComment;

final class PackerText {
  /** Packer and the classes that it needs, for inside the loop that Spark generates. */
  final String classes;
  /** PackedRows and the classes that it needs, as Spark's CodeGenerator takes them. */
  final CodeAndComment step;

  PackerText(String classes, String step) {
    this.classes = classes;
    this.step = new CodeAndComment(step, scala.collection.immutable.Map$.MODULE$.empty());
  }
}
