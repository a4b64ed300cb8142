/*
 * Scala's sequences, from Java.
 *
 * Owns: the conversion.
 * Must not know: what is in them.
 */
package sparklog.dataframe;

import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

final class ScalaSeq {
  private ScalaSeq() {}

  static Seq of(Object... items) {
    return CollectionConverters.asScala(java.util.Arrays.asList(items)).toSeq();
  }
}
