/*
 * A Produce request in flight.
 *
 * Owns: the pieces of the request, each of another partition, and its correlation id.
 * Must not know: how requests are laid out; Spark.
 */
package sparklog.dataframe;

final class SentRequest {
  final SentPiece[] pieces;
  int correlationId;

  SentRequest(java.util.Collection pieces) {
    this.pieces = (SentPiece[]) pieces.toArray(new SentPiece[0]);
  }

  /**
   * The index of the partition's piece, which is usually {@code expected}: brokers answer in the
   * order of the request.  Throws IOException if the request has no piece of that partition.
   */
  int indexOf(int partition, int expected) throws java.io.IOException {
    if (pieces[expected].partition == partition) return expected;
    for (int i = 0; i < pieces.length; i++) if (pieces[i].partition == partition) return i;
    throw new java.io.IOException("an answer to something else");
  }
}
