/*
 * The packer as a step of its own: rows that another step has made become pieces.
 *
 * Owns: how the columns of such rows are read.
 * Must not know: how records are laid out, how this class comes into a plan.
 *
 * The class has the form of Spark's generated code.  Its references are: the indexes of the columns
 * value, timestamp and key (-1 stands for none), whether the value is a string, whether the key is
 * a string, the bytes of records that a piece may have, a metric of records, and a destination
 * (PieceOutlet).
 */
package sparklog.dataframe;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

final class PackedRows extends org.apache.spark.sql.execution.BufferedRowIterator {
  private final int value;
  private final int timestamp;
  private final int key;
  private final boolean textValue;
  private final boolean textKey;
  private final int pieceBytesMax;
  private final org.apache.spark.sql.execution.metric.SQLMetric recordsWritten;
  private final String[] destination;
  private scala.collection.Iterator rows;
  private Packer packer;

  public PackedRows(Object[] references) {
    value = ((Integer) references[0]).intValue();
    timestamp = ((Integer) references[1]).intValue();
    key = ((Integer) references[2]).intValue();
    textValue = ((Boolean) references[3]).booleanValue();
    textKey = ((Boolean) references[4]).booleanValue();
    pieceBytesMax = ((Integer) references[5]).intValue();
    recordsWritten = (org.apache.spark.sql.execution.metric.SQLMetric) references[6];
    destination = (String[]) references[7];
  }

  public void init(int index, scala.collection.Iterator[] inputs) {
    partitionIndex = index;
    rows = inputs[0];
    packer = new Packer(pieceBytesMax, key >= 0, recordsWritten, destination);
  }

  protected void processNext() throws java.io.IOException {
    packer.start();
    while (rows.hasNext()) {
      if (add((InternalRow) rows.next())) {
        appendRows();
        return;
      }
    }
    packer.finish();
    appendRows();
  }

  /** Gives Spark all rows that there are for now. */
  private void appendRows() {
    for (InternalRow row = packer.next(); row != null; row = packer.next()) append(row);
  }

  /** Adds a row, and returns whether there are rows for Python. */
  private boolean add(InternalRow row) {
    boolean timed = timestamp >= 0 && !row.isNullAt(timestamp);
    long micros = timed ? row.getLong(timestamp) : 0L;
    if (key >= 0) setKey(row);
    if (row.isNullAt(value)) return packer.add((byte[]) null, timed, micros);
    if (row instanceof UnsafeRow) {
      UnsafeRow unsafe = (UnsafeRow) row;
      long place = unsafe.getLong(value);
      long offset = unsafe.getBaseOffset() + (place >>> 32);
      return packer.add(unsafe.getBaseObject(), offset, (int) place, timed, micros);
    }
    if (textValue) return packer.add(row.getUTF8String(value), timed, micros);
    return packer.add(row.getBinary(value), timed, micros);
  }

  private void setKey(InternalRow row) {
    if (row.isNullAt(key)) packer.setKey((byte[]) null);
    else if (textKey) packer.setKey(row.getUTF8String(key));
    else packer.setKey(row.getBinary(key));
  }
}
