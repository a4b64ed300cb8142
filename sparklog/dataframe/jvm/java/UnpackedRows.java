/*
 * The unpacker: record batches become Spark's rows.
 *
 * Owns: the input values, and the columns of the rows.
 * Must not know: how batches are laid out, where they come from, how this class comes into a plan.
 *
 * The class has the form of Spark's generated code.  Its references are: the index of the column
 * with the input values, the kinds of the columns of the output (their indexes in constants.py,
 * COLUMNS), and a metric of the rows of the output.
 *
 * An empty input value says that the next value has bounds: the first offset, the offset behind the
 * last one, the partition (constants.py, BOUNDS), and then the name of the topic.  Every other
 * value has plain batches (wire/records/plain_batches.py).
 */
package sparklog.dataframe;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

final class UnpackedRows extends org.apache.spark.sql.execution.BufferedRowIterator {
  /** Spark counts microseconds. */
  private static final long MILLISECONDS_MAX = Long.MAX_VALUE / 1000L;

  private final int carrier;
  private final int[] kinds;
  private final org.apache.spark.sql.execution.metric.SQLMetric outputRows;
  private final org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter writer;
  private final BatchReader reader = new BatchReader();
  private scala.collection.Iterator values;
  /** Whether the reader is at a record that was not given yet. */
  private boolean ready;
  /** Rows since the metric was updated. */
  private int rowsSinceUpdate;
  private int partition;
  private UTF8String topic;

  public UnpackedRows(Object[] references) {
    carrier = ((Integer) references[0]).intValue();
    kinds = (int[]) references[1];
    outputRows = (org.apache.spark.sql.execution.metric.SQLMetric) references[2];
    writer = new org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter(
        kinds.length, 256);
  }

  public void init(int index, scala.collection.Iterator[] inputs) {
    partitionIndex = index;
    values = inputs[0];
  }

  protected void processNext() {}

  public boolean hasNext() {
    if (ready) return true;
    try {
      ready = advance();
    } catch (ArrayIndexOutOfBoundsException error) {
      throw reader.malformed("a record goes on out of bounds of its batch");
    }
    return ready;
  }

  public InternalRow next() {
    if (!hasNext()) throw new java.util.NoSuchElementException();
    ready = false;
    rowsSinceUpdate++;
    fill();
    return writer.getRow();
  }

  /** Moves the reader to the next record; returns false if there is none. */
  private boolean advance() {
    while (!reader.nextRecord()) {
      outputRows.add(rowsSinceUpdate);
      rowsSinceUpdate = 0;
      if (reader.nextBatch()) continue;
      if (!values.hasNext()) return false;
      take((InternalRow) values.next());
    }
    return true;
  }

  private void take(InternalRow row) {
    byte[] data;
    int start = 0;
    int size;
    if (row instanceof UnsafeRow && ((UnsafeRow) row).getBaseObject() instanceof byte[]) {
      UnsafeRow unsafe = (UnsafeRow) row;
      long where = unsafe.getLong(carrier);
      data = (byte[]) unsafe.getBaseObject();
      start = (int) (unsafe.getBaseOffset() - Platform.BYTE_ARRAY_OFFSET + (where >>> 32));
      size = (int) where;
    } else {
      data = row.getBinary(carrier);
      size = data.length;
    }
    if (size == 0) readBounds(((InternalRow) values.next()).getBinary(carrier));
    else reader.setData(data, start, size);
  }

  private void readBounds(byte[] bounds) {
    java.nio.ByteBuffer fields = java.nio.ByteBuffer.wrap(bounds);
    long first = fields.getLong();
    long end = fields.getLong();
    partition = fields.getInt();
    topic = UTF8String.fromBytes(bounds, fields.position(), fields.remaining());
    reader.setBounds(topic.toString(), partition, first, end);
  }

  private void fill() {
    writer.reset();
    writer.zeroOutNullBytes();
    for (int i = 0; i < kinds.length; i++) {
      switch (kinds[i]) {
        case 0: writeBytes(i, reader.keyStart, reader.keyLength); break;
        case 1: writeBytes(i, reader.valueStart, reader.valueLength); break;
        case 2: writer.write(i, topic); break;
        case 3: writer.write(i, partition); break;
        case 4: writer.write(i, reader.offset); break;
        case 5: writer.write(i, microseconds()); break;
        default: writer.write(i, reader.appendTime ? 1 : 0);
      }
    }
  }

  private void writeBytes(int column, int start, int length) {
    if (length < 0) writer.setNullAt(column);
    else writer.write(column, reader.data, start, length);
  }

  private long microseconds() {
    long milliseconds = reader.timestamp();
    return Math.max(-MILLISECONDS_MAX, Math.min(MILLISECONDS_MAX, milliseconds)) * 1000L;
  }
}
