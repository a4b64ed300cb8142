/*
 * A write as the packer has to know it.
 *
 * Owns: which columns and options the packer takes, and the factory of the packer as a step of its
 * own.
 * Must not know: the plan around the write.
 */
package sparklog.dataframe;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.WholeStageCodegenEvaluatorFactory;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class Packing {
  /** Writes with one of these options are not packed. */
  private static final String[] OTHER_OPTIONS = {
    "partitioner", "kafka.partitioner", "kafka.partitioner.class", "kafka.partitioner.ignore.keys"
  };
  /** Values of kafka.batch.size that pieces are made for. */
  private static final int BATCH_BYTES_MIN = 16 * 1024;
  private static final int BATCH_BYTES_MAX = 4 * 1024 * 1024;
  final PackerText text;
  /** Indexes of the columns; -1 stands for none. */
  int value = -1;
  int timestamp = -1;
  int key = -1;
  /** Whether the columns are strings; else they are bytes. */
  boolean textValue;
  boolean textKey;
  /** Bytes of records that a piece may have. */
  int pieceBytesMax;
  /** The destination of PieceSender; null if Python sends. */
  String[] destination;

  private Packing(PackerText text) {
    this.text = text;
  }

  /** Returns null if the packer cannot do the write exactly as Python does it. */
  static Packing of(StructType schema, CaseInsensitiveStringMap options, PackerText text) {
    Packing found = new Packing(text);
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
    for (int i = 0; i < OTHER_OPTIONS.length; i++)
      if (options.containsKey(OTHER_OPTIONS[i])) return null;
    try {
      String given = options.get("kafka.batch.size");
      int size = given == null ? Constants.BATCH_BYTES : Integer.parseInt(given);
      if (size < BATCH_BYTES_MIN || size > BATCH_BYTES_MAX) return null;
      found.pieceBytesMax = size - Constants.BATCH_OVERHEAD;
    } catch (NumberFormatException error) {
      return null;
    }
    return found;
  }

  /** Some versions of Spark take the text itself, others a scala.util.Either of it. */
  WholeStageCodegenEvaluatorFactory factory(SQLMetric duration, SQLMetric recordsWritten) {
    Object[] references = {
      Integer.valueOf(value), Integer.valueOf(timestamp), Integer.valueOf(key),
      Boolean.valueOf(textValue), Boolean.valueOf(textKey), Integer.valueOf(pieceBytesMax),
      recordsWritten, destination
    };
    java.lang.reflect.Constructor constructor =
        WholeStageCodegenEvaluatorFactory.class.getConstructors()[0];
    boolean plain = constructor.getParameterTypes()[0].isInstance(text.step);
    Object code = plain ? (Object) text.step : new scala.util.Right(text.step);
    try {
      return (WholeStageCodegenEvaluatorFactory)
          constructor.newInstance(new Object[] {code, duration, references});
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  /** The pieces of the rows, by the packer as a step of its own. */
  RDD packed(RDD rows, SQLMetric duration, SQLMetric recordsWritten) {
    return rows.mapPartitionsWithEvaluator(
        factory(duration, recordsWritten),
        scala.reflect.ClassTag$.MODULE$.apply(InternalRow.class));
  }

  public String toString() {
    return "value #" + value + ", timestamp #" + timestamp + ", key #" + key + ", " + pieceBytesMax
        + " bytes";
  }
}
