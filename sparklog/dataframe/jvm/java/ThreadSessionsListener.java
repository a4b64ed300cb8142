/*
 * The listener that gives the threads of Python's connections an active session.
 *
 * Owns: the session of the thread that accepts connections.
 * Must not know: which thread connects, and what for.
 *
 * Py4J calls the listener in that thread whenever it has accepted a connection.  The thread of the
 * next connection inherits the session.
 */
package sparklog.dataframe;

import org.apache.spark.sql.SparkSession;

public class ThreadSessionsListener extends py4j.DefaultGatewayServerListener {
  public void connectionStarted(py4j.Py4JServerConnection connection) {
    scala.Option session = SparkSession.getDefaultSession();
    if (session.isDefined()) SparkSession.setActiveSession((SparkSession) session.get());
    else SparkSession.clearActiveSession();
  }
}
