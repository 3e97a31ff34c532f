#include "lib/program/program.h"
#include "lib/formats/layout.h"

#include <gtest/gtest.h>

#include <limits>

namespace ktx::program {
namespace {

// y = norm(x), y += matmul of x in int8, with every kind of item and awkward names.
Program small_graph() {
  Program graph;
  graph.buffers = {{0, 1024, 0}, {64, 0, 0}};
  graph.values = {{"x", ValueType::F32, RowKind::Token, 1, 64, 0},
                  {"odd name:\"\\\n,=", ValueType::Q8, RowKind::Token, 1, 64, 1},
                  {"L0.h", ValueType::F32, RowKind::Output, 2, 32, kAbsent},
                  {"y", ValueType::F32, RowKind::Token, 1, 64, kAbsent}};
  graph.kv_slots = {{0, 2, 16, 16, "cpu"},
                    {0, 2, 16, 16, "cpu", 64},
                    {0, 2, 16, 16, "cpu", 64, SequenceKind::Window}};
  graph.blobs = {
      {"norm", DType::F32, Layout::Rows, 1, 64, 1, {{"blk.0.norm", 0, -1}}, {}, "cpu"},
      {"w", DType::Q4_0, Layout::Rows, 64, 64, 1, {{"a", 0, 32}, {"b", 7, 32}}, {}, "cpu"},
      {"freq", DType::F32, Layout::Rows, 1, 3, 1, {}, {1.0f, 0.1f, 1e-30f}, "cpu"}};
  Step norm;
  norm.op = StepOp::RmsNorm;
  norm.module = "model.norm";
  norm.device = "cpu";
  norm.inputs = {graph.whole(0)};
  norm.outputs = {graph.whole(3)};
  norm.weights = {0};
  norm.attrs = RmsNormAttrs{1e-6f, 1};
  norm.kernels[0] = "rms_norm";
  norm.kernels[1] = "a";
  Step quantize;
  quantize.op = StepOp::Quantize;
  quantize.device = "cpu";
  quantize.inputs = {graph.whole(0)};
  quantize.outputs = {graph.whole(1)};
  quantize.attrs = QuantizeAttrs{1, 64};
  Step matmul;
  matmul.op = StepOp::Matmul;
  matmul.layer = 3;
  matmul.device = "cpu";
  matmul.inputs = {graph.whole(0), graph.whole(1)};
  matmul.outputs = {graph.whole(3)};
  matmul.weights = {1, kAbsent};
  matmul.attrs = MatmulAttrs{1};
  // The first step reads x, which nothing wrote: give it a writer.
  Step embed;
  embed.op = StepOp::Embed;
  embed.device = "cpu";
  embed.outputs = {graph.whole(0)};
  embed.weights = {1};
  embed.attrs = NoAttrs{};
  graph.steps = {embed, norm, quantize, matmul};
  return graph;
}

int errors_of(const Program& graph) {
  DiagSink sink;
  verify(graph, sink);
  return sink.errors();
}

TEST(Program, PrintsAndParsesBackExactly) {
  const std::string text = print(small_graph());
  Result<Program> parsed = parse(text, "test");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(print(*parsed), text);
  EXPECT_EQ(parsed->values[1].name, small_graph().values[1].name);
  EXPECT_EQ(parsed->blobs[2].constant, small_graph().blobs[2].constant);
  EXPECT_EQ(parsed->kv_slots[0].kind(), SequenceKind::Whole);
  EXPECT_EQ(parsed->kv_slots[1].kind(), SequenceKind::Window);
  EXPECT_EQ(parsed->kv_slots[2].named, SequenceKind::Window);
}

TEST(Program, VerifyAcceptsASoundGraph) {
  EXPECT_EQ(errors_of(small_graph()), 0);
}

TEST(Program, VerifyFindsEachBrokenPromise) {
  const struct {
    const char* what;
    void (*break_it)(Program&);
  } kCases[] = {
      {"reads before a write", [](Program& g) { g.steps.erase(g.steps.begin()); }},
      {"view outside its value", [](Program& g) { g.steps[3].inputs[0].offset = 1; }},
      {"huge view offset", [](Program& g) { g.steps[3].inputs[0].offset = INT64_MAX; }},
      {"no such value", [](Program& g) { g.steps[3].inputs[0].value = 99; }},
      {"no such blob", [](Program& g) { g.steps[3].weights[0] = 99; }},
      {"missing operand", [](Program& g) { g.steps[3].outputs.pop_back(); }},
      {"wrong weight shape", [](Program& g) { g.blobs[1].cols = 32; }},
      {"row no multiple of the block", [](Program& g) { g.blobs[1].cols = 63; }},
      {"attributes of another op", [](Program& g) { g.steps[1].attrs = NoAttrs{}; }},
      {"two values of one name", [](Program& g) { g.values[2].name = "x"; }},
      {"no such buffer", [](Program& g) { g.values[0].buffer = 7; }},
      {"blob without a source", [](Program& g) { g.blobs[0].sources.clear(); }},
      {"groups that do not divide",
       [](Program& g) {
         g.steps[1].attrs = RmsNormAttrs{0, 3};
       }},
      {"int8 rows outside x",
       [](Program& g) {
         g.steps[2].attrs = QuantizeAttrs{1, 0};
       }},
      {"width that overflows", [](Program& g) { g.values[0].width = INT64_MAX / 2; }},
      {"weight that overflows", [](Program& g) { g.blobs[1].matrices = INT64_MAX / 2; }},
      {"KV slot without heads", [](Program& g) { g.kv_slots[0].kv_heads = 0; }},
      {"required operand left out", [](Program& g) { g.steps[3].inputs[0] = View{}; }},
      {"required weight left out", [](Program& g) { g.steps[3].weights[0] = kAbsent; }},
      {"norm of integers", [](Program& g) { g.values[0].type = ValueType::I32; }},
      {"written over what it reads", [](Program& g) { g.steps[3].outputs[0] = g.whole(0); }},
      {"memory that was reused", [](Program& g) { g.values[1].buffer = 0; }},
      {"attribute that is no number",
       [](Program& g) {
         g.steps[1].attrs = RmsNormAttrs{std::numeric_limits<float>::infinity(), 1};
       }},
  };
  for (const auto& c : kCases) {
    Program graph = small_graph();
    c.break_it(graph);
    EXPECT_GT(errors_of(graph), 0) << c.what;
  }
}

TEST(Program, VerifyKnowsDevicesOnceTransfersAreThere) {
  const auto errors = [](const Program& graph, bool devices) {
    DiagSink sink;
    verify(graph, sink, devices);
    return sink.errors();
  };
  Program graph = small_graph();
  EXPECT_EQ(errors(graph, true), 0);
  graph.blobs[1].device = "cuda:0";
  EXPECT_EQ(errors(graph, false), 0);
  EXPECT_EQ(errors(graph, true), 2) << "the embedding and the product";
  graph = small_graph();
  graph.steps[1].device = "cuda:0";
  EXPECT_GT(errors(graph, true), 0) << "reads x of the CPU";
}

// The words are those of the plan's reader: one set of rules (lib/ops/op_rules.h).
TEST(Program, VerifySaysWhatAnOpAsksFor) {
  Program graph = small_graph();
  graph.steps[3].attrs = MatmulAttrs{2};
  DiagSink sink;
  verify(graph, sink);
  ASSERT_EQ(sink.errors(), 1);
  EXPECT_NE(sink.all()[0].message.find("accumulate is 2, expected 0 to 1"), std::string::npos)
      << sink.all()[0].message;
}

TEST(Program, ParseSaysWhichLineIsWrong) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {"", "t:1: expected 'step-ir 1' in the first line"},
      {"step-ir 2\n", "t:1: expected 'step-ir 1' in the first line"},
      {"step-ir 1\nvalue name", "t:2: expected key=value"},
      {"step-ir 1\nvalue name=x\nvalue name=x", "t:3: value 'x' appears twice"},
      {"step-ir 1\nvalue name=x width=1e3", "t:2: 'width' is no number that fits"},
      {"step-ir 1\nstep op=nothing", "t:2: unknown op 'nothing'"},
      {"step-ir 1\nstep op=matmul in=y:0:4", "t:2: no value 'y'"},
      {"step-ir 1\nstep op=matmul attrs=accumulate:x",
       "t:2: attribute 'accumulate' is unknown or no number"},
      {"step-ir 1\nkv layer=0 kind=ring", "t:2: unknown kind of a KV slot"},
      {"step-ir 1\nblob name=\"unclosed", "t:2: bad value of 'name'"},
  };
  for (const auto& c : kCases) {
    Result<Program> parsed = parse(c.text, "t");
    ASSERT_FALSE(parsed) << c.text;
    EXPECT_EQ(parsed.error().message, c.message);
  }
}

TEST(Program, ParseSurvivesEveryTruncation) {
  const std::string text = print(small_graph());
  for (size_t size = 0; size < text.size(); ++size) {
    (void)parse(std::string_view(text).substr(0, size), "t");
  }
}

}  // namespace
}  // namespace ktx::program
