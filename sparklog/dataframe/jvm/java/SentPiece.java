/*
 * A piece in the hands of the sender.
 *
 * Owns: the records of one batch, and what became of them so far.
 * Must not know: how records and requests are laid out; Spark.
 */
package sparklog.dataframe;

final class SentPiece {
  /** The records are the first {@code end} bytes. */
  byte[] records;
  int end;
  int recordCount;
  /** The first and the latest timestamp of the records, in milliseconds since 1970. */
  long baseTimestamp;
  long maxTimestamp;
  int partition;
  /** The sequence number of the first record. */
  int baseSequence;
  /** The error code of the last response. */
  int errorCode;
  /** Whether the piece was ever sent, and when it was sent first, by System.nanoTime. */
  boolean isSent;
  long sentNs;
}
