/*
 * Records that become one piece.
 *
 * Owns: the buffer and the header values of the records that were packed since the last piece.
 * Must not know: how records are laid out; Spark.
 */
package sparklog.dataframe;

final class Section {
  /** As in the rows of PieceOutlet: a partition, ANY_PARTITION or BY_KEY. */
  final int partition;
  /** The records are the first {@code end} bytes. */
  byte[] bytes;
  int end;
  int recordCount;
  /** The first and the latest timestamp of the records, in milliseconds since 1970. */
  long baseTimestamp;
  long maxTimestamp;

  Section(int partition, byte[] bytes) {
    this.partition = partition;
    this.bytes = bytes;
  }
}
