/*
 * The packer inside the code that Spark generates for the steps below it.
 *
 * Owns: the step of a plan that gives the code.
 * Must not know: how records are laid out, which writes are packed.
 *
 * Spark makes one loop of all steps that can give it code (CodegenSupport).  A row that leaves the
 * loop becomes an UnsafeRow in a list, and the next step takes it apart again.  For rows that
 * become records, that costs more than laying out the records.
 *
 * The plan below a write is final only when the write is executed, above all if the plan is
 * adaptive.  So this step is no part of the plan that Spark shows: PackRecordsExec executes this
 * step's loop instead of the outermost loop of the plan.
 */
package sparklog.dataframe;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.execution.CodegenSupport;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.metric.SQLMetric;
import scala.collection.immutable.Seq;

class FusedPackExec extends SparkPlan implements CodegenSupport {
  private final WholeStageCodegenExec original;
  private final Packing packing;
  private final SQLMetric duration;
  private final SQLMetric recordsWritten;
  private final Seq columns = DataTypeUtils.toAttributes(PiecesWriteInfo.PIECES);
  private CodegenSupport parent;
  private String packer;

  FusedPackExec(
      WholeStageCodegenExec original, Packing packing, SQLMetric duration,
      SQLMetric recordsWritten) {
    this.original = original;
    this.packing = packing;
    this.duration = duration;
    this.recordsWritten = recordsWritten;
  }

  /**
   * The code of the steps below also returns at its end.  So that code has a function of its own,
   * in the generated class itself, because it uses what only that class inherits.  The packer is
   * made after those steps, which may run other steps when they are made.
   */
  public String doProduce(CodegenContext context) {
    String metric = context.addReferenceObj("written", recordsWritten, null);
    String destination =
        context.addReferenceObj("destination", packing.destination, "String[]");
    context.addInnerClass(packing.text.classes);
    packer = context.addMutableState("Packer", "packer", new scala.runtime.AbstractFunction1() {
      public Object apply(Object name) {
        return "";
      }
    }, true, true);
    context.addPartitionInitializationStatement(
        packer + " = new Packer(" + packing.pieceBytesMax + ", " + (packing.key >= 0) + ", "
            + metric + ", " + destination + ");");
    String name = context.freshName("packRows");
    String rows = producedBelow(context);
    String packRows = context.addNewFunction(
        name, "private void " + name + "() throws java.io.IOException {" + rows + "}", true);
    return packer + ".start();\n" + packRows + "();\nif (shouldStop()) return;\n"
        + packer + ".finish();\n" + appendRows(context);
  }

  /** The code that gives Spark all rows that there are for now. */
  private String appendRows(CodegenContext context) {
    String row = context.freshName("row");
    String next = row + " = " + packer + ".next()";
    return "for (InternalRow " + next + "; " + row + " != null; " + next + ") append(" + row
        + ");\n";
  }

  /**
   * The code of the steps below.  Some of these steps travel with their code to executors, which do
   * not have this class: so they are made to forget it.
   */
  private String producedBelow(CodegenContext context) {
    CodegenSupport below = (CodegenSupport) original.child();
    try {
      return below.produce(context, this);
    } finally {
      below.parent_$eq(original);
    }
  }

  public String doConsume(CodegenContext context, Seq input, ExprCode row) {
    String evaluated = evaluateVariables(input);
    String key = "";
    if (packing.key >= 0) {
      String given = orNull((ExprCode) input.apply(packing.key), packing.textKey);
      key = packer + ".setKey(" + given + ");\n";
    }
    String given = orNull((ExprCode) input.apply(packing.value), packing.textValue);
    String time = "false, 0L";
    if (packing.timestamp >= 0) {
      ExprCode timestamp = (ExprCode) input.apply(packing.timestamp);
      time = "!(" + timestamp.isNull() + "), " + timestamp.value();
    }
    return evaluated + "\n" + key + "if (" + packer + ".add(" + given + ", " + time + ")) {\n"
        + appendRows(context) + "}\n";
  }

  private static String orNull(ExprCode column, boolean text) {
    String kind = text ? "UTF8String" : "byte[]";
    return "(" + column.isNull() + ") ? (" + kind + ") null : " + column.value();
  }

  /** Called where Spark finds the loop too large to compile. */
  public RDD doExecute() {
    return packing.packed(original.execute(), duration, recordsWritten);
  }

  public Seq inputRDDs() {
    return ((CodegenSupport) original.child()).inputRDDs();
  }

  public CodegenSupport parent() {
    return parent;
  }

  public void parent_$eq(CodegenSupport given) {
    parent = given;
  }

  public Seq output() {
    return columns;
  }

  public Seq children() {
    return ScalaSeq.of(original.child());
  }

  public SparkPlan withNewChildrenInternal(scala.collection.immutable.IndexedSeq replaced) {
    throw new UnsupportedOperationException("it is made when all is planned");
  }

  public int productArity() {
    return 1;
  }

  public Object productElement(int index) {
    return packing;
  }

  public boolean canEqual(Object other) {
    return other instanceof FusedPackExec;
  }
}
