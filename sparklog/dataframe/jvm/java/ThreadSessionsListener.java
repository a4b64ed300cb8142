/*
 * Gives the threads of Python's connections an active session.
 *
 * Owns: a listener of Py4J's gateway server.
 * Must not know: who connects.
 *
 * The thread that accepts connections calls the listener whenever it has accepted one, and the
 * thread of the next connection inherits its session.
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
