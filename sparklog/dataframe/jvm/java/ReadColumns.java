/*
 * The columns of a scan, as the unpacker has to know them.
 *
 * Owns: which columns of a scan are columns of a topic, and which one carries batches.
 * Must not know: what becomes of the scan.
 */
package sparklog.dataframe;

import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import scala.collection.immutable.Seq;

final class ReadColumns {
  /** By column of the scan: its index in constants.py, COLUMNS. */
  final int[] kinds;
  /** The column that carries batches, which has to be one of bytes; -1 if there is none. */
  int carrier = -1;
  private boolean ours = true;

  ReadColumns(Seq output) {
    List types = Arrays.asList(Constants.READ_COLUMNS.split("; "));
    kinds = new int[output.size()];
    for (int i = 0; i < kinds.length; i++) {
      AttributeReference column = (AttributeReference) output.apply(i);
      kinds[i] = types.indexOf(column.name() + " " + column.dataType().simpleString());
      ours &= kinds[i] >= 0 && column.nullable();
      if (column.dataType().simpleString().equals("binary")) carrier = i;
    }
  }

  /** Whether the unpacker can make rows of these columns. */
  boolean known() {
    return ours && carrier >= 0;
  }
}
