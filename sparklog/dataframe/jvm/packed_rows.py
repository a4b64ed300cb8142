"""The packer as a step of its own: takes rows that another step has made.

Owns: the Java that reads columns of such rows.  Must not know how records are laid out, nor how it
comes into a plan.
"""

from typing import Final

from sparklog.dataframe.jvm.record_packer import packer_java

_JAVA: Final = r"""
public Object generate(Object[] references) {
  return new PackedRows(references);
}

final class PackedRows extends org.apache.spark.sql.execution.BufferedRowIterator {
  private final int value;
  private final int timestamp;
  private final int key;
  private final boolean textValue;
  private final boolean textKey;
  private final int limit;
  private final org.apache.spark.sql.execution.metric.SQLMetric written;
  private final String[] destination;
  private scala.collection.Iterator rows;
  private Packer packer;

  public PackedRows(Object[] references) {
    value = ((Integer) references[0]).intValue();
    timestamp = ((Integer) references[1]).intValue();
    key = ((Integer) references[2]).intValue();
    textValue = ((Boolean) references[3]).booleanValue();
    textKey = ((Boolean) references[4]).booleanValue();
    limit = ((Integer) references[5]).intValue();
    written = (org.apache.spark.sql.execution.metric.SQLMetric) references[6];
    destination = (String[]) references[7];
  }

  public void init(int index, scala.collection.Iterator[] inputs) {
    partitionIndex = index;
    rows = inputs[0];
    packer = new Packer(limit, key >= 0, written, destination);
  }

  protected void processNext() throws java.io.IOException {
    packer.start();
    while (rows.hasNext()) {
      if (add((InternalRow) rows.next())) {
        hand();
        return;
      }
    }
    packer.finish();
    hand();
  }

  private void hand() {
    for (InternalRow row = packer.next(); row != null; row = packer.next()) append(row);
  }

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
"""


def packed_rows_java() -> str:
    """What ``CodeGenerator.compile`` takes.

    Its references are: the places of the columns ``value``, ``timestamp`` and ``key`` (-1: none),
    whether the value is a string, and whether the key is, the bytes of records that a piece may
    have, a metric of records, and a destination (see ``piece_outlet``).
    """
    return _JAVA + packer_java()
