/*
 * The base of the planner strategies: a setting switches the strategy off.
 *
 * Owns: the setting, and giving up for good in a version of Spark that the strategy does not fit.
 * Must not know: what the strategy plans.
 */
package sparklog.dataframe;

import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Seq;

abstract class SwitchableStrategy extends SparkStrategy {
  private final SparkSession session;
  private final String setting;
  private final String without;
  private final AtomicBoolean refused;

  /**
   * The strategy is off while {@code setting} is "false", and for good once {@code refused} is set,
   * which all sessions of an application share.  {@code without} says what happens then.
   */
  SwitchableStrategy(
      SparkSession session, String setting, String without, AtomicBoolean refused) {
    this.session = session;
    this.setting = setting;
    this.without = without;
    this.refused = refused;
  }

  SparkSession session() {
    return session;
  }

  boolean isWanted() {
    return !refused.get() && !isOff(setting);
  }

  boolean isOff(String name) {
    return "false".equalsIgnoreCase(session.conf().get(name, "true").trim());
  }

  /** Leaves this plan and all later ones to Spark's other strategies. */
  Seq refuse(Throwable error) {
    refused.set(true);
    System.err.println("sparklog: " + without + ": " + error);
    return ScalaSeq.of();
  }
}
