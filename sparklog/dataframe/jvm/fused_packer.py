"""The packer inside the code that Spark generates for the steps below it.

Owns: the step of a plan that does it.  Must not know how records are laid out, nor which writes are
packed.

Spark makes one loop of all steps that can give it code (``CodegenSupport``); what leaves the loop
becomes an ``UnsafeRow`` in a list, for the next step to take apart again.  For rows that become
records that costs more than laying them out.

Only when the write is executed is the plan below what it will stay, adaptive ones above all.  So
the step is no part of the plan that Spark shows: its loop is executed instead of the outermost one.
"""

from typing import Final

#: Classes for inside another one, which has ``Packing``, ``PIECES`` and the packer's own text.
FUSED_JAVA: Final = r"""
  /** The loop of the steps below, with the packer in it; Spark counts its time as before. */
  private static class FusedLoop extends WholeStageCodegenExec {
    private final WholeStageCodegenExec usual;

    FusedLoop(WholeStageCodegenExec usual, FusedPack pack) {
      super(pack, usual.codegenStageId());
      this.usual = usual;
    }

    public scala.collection.immutable.Map metrics() {
      return usual.metrics();
    }
  }

  private static class FusedPack extends SparkPlan implements CodegenSupport {
    private final WholeStageCodegenExec usual;
    private final Packing packing;
    private final SQLMetric taken;
    private final SQLMetric written;
    private final Seq columns = DataTypeUtils.toAttributes(PIECES);
    private CodegenSupport parent;
    private String packer;

    FusedPack(WholeStageCodegenExec usual, Packing packing, SQLMetric taken, SQLMetric written) {
      this.usual = usual;
      this.packing = packing;
      this.taken = taken;
      this.written = written;
    }

    /**
     * The code of the steps below returns also when they are through, so it has a function of its
     * own, in the class itself: it uses what only that inherits.  The packer is made after those
     * steps were, which may run others for that.
     */
    public String doProduce(CodegenContext context) {
      String metric = context.addReferenceObj("written", written, null);
      String destination =
          context.addReferenceObj("destination", packing.destination, "String[]");
      context.addInnerClass(PACKER_TEXT);
      packer = context.addMutableState("Packer", "packer", new scala.runtime.AbstractFunction1() {
        public Object apply(Object name) {
          return "";
        }
      }, true, true);
      context.addPartitionInitializationStatement(
          packer + " = new Packer(" + packing.limit + ", " + (packing.key >= 0) + ", " + metric
              + ", " + destination + ");");
      String name = context.freshName("packRows");
      String rows = producedBelow(context);
      String packRows = context.addNewFunction(
          name, "private void " + name + "() throws java.io.IOException {" + rows + "}", true);
      return packer + ".start();\n" + packRows + "();\nif (shouldStop()) return;\n"
          + packer + ".finish();\n" + hand(context);
    }

    /** All rows for Python that are there. */
    private String hand(CodegenContext context) {
      String row = context.freshName("row");
      String next = row + " = " + packer + ".next()";
      return "for (InternalRow " + next + "; " + row + " != null; " + next + ") append(" + row
          + ");\n";
    }

    /** Some of them travel with the code, to executors without this class: they forget it. */
    private String producedBelow(CodegenContext context) {
      CodegenSupport below = (CodegenSupport) usual.child();
      try {
        return below.produce(context, this);
      } finally {
        below.parent_$eq(usual);
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
          + hand(context) + "}\n";
    }

    private static String orNull(ExprCode column, boolean text) {
      String kind = text ? "UTF8String" : "byte[]";
      return "(" + column.isNull() + ") ? (" + kind + ") null : " + column.value();
    }

    /** Spark finds that the loop is too large for it. */
    public RDD doExecute() {
      return packing.packed(usual.execute(), taken, written);
    }

    public Seq inputRDDs() {
      return ((CodegenSupport) usual.child()).inputRDDs();
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
      return sequence(usual.child());
    }

    public TreeNode withNewChildrenInternal(scala.collection.immutable.IndexedSeq replaced) {
      throw new UnsupportedOperationException("it is made when all is planned");
    }

    public int productArity() {
      return 1;
    }

    public Object productElement(int index) {
      return packing;
    }

    public boolean canEqual(Object other) {
      return other instanceof FusedPack;
    }
  }
"""
