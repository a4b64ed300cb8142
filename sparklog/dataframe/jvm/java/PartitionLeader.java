/*
 * A broker that leads partitions of the topic, as the sender sees it.
 *
 * Owns: the broker's connection, its requests in flight, and the pieces that wait for the next one.
 * Must not know: when a request is sent; Spark's planner.
 */
package sparklog.dataframe;

final class PartitionLeader {
  final BrokerConnection connection;
  /** Requests (SentRequest), in the order of their responses. */
  final java.util.ArrayDeque inFlight = new java.util.ArrayDeque();
  /**
   * Pieces for the next request.  The list is empty as long as another request may be in flight.
   */
  final java.util.ArrayList waiting = new java.util.ArrayList();
  long waitingBytes;
  /** Pieces that the broker answered with an error. */
  final java.util.ArrayList refused = new java.util.ArrayList();

  PartitionLeader(BrokerConnection connection) {
    this.connection = connection;
  }

  /** The request whose response comes next, or null. */
  SentRequest first() {
    return (SentRequest) inFlight.peek();
  }
}
