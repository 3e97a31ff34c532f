// Draft heads (EAGLE-3) within plans: their logits are those of their formulas, from the model's
// hidden states on the CPU and on GPUs in host memory; what does not fit is said at compile time.
// That they change no answer is tested with the other drafters (prediction_test.cc).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "lib/arch/build_graph.h"
#include "lib/input/model_source.h"
#include "lib/plan/check_step_records.h"
#include "lib/reference/interpreter.h"
#include "tests/support/diag_text.h"
#include "tests/support/draft_head_gguf.h"
#include "tests/support/draft_head_reference.h"
#include "tests/support/draft_plans.h"
#include "tests/support/host_gpu.h"
#include "tests/support/test_models.h"
#include "tests/unit/plan/plan_records.h"

namespace ktx::testing {
namespace {

using runtime::BatchItem;
using runtime::Engine;
using runtime::EngineOptions;
using runtime::Want;

const std::vector<int32_t> kTokens = {7, 300, 12, 12, 255, 1, 64, 33, 290, 8, 15, 15, 2, 99};
const std::vector<int32_t> kFurther = {11, 402, 5};

struct Variant {
  const char* name;
  const char* model;
  std::vector<const char*> rules;
  DraftHeadOptions head;
};

class DraftHeads : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    const std::string path = test_model_gguf(GetParam().model);
    if (path.empty()) GTEST_SKIP() << "no model " << GetParam().model;
    DiagSink diags;
    input::ModelInputs inputs;
    inputs.gguf_path = path;
    inputs.accept = arch::accept_architecture;
    auto source = input::open_model(inputs, diags);
    ASSERT_TRUE(source.ok()) << source.error().message;
    source_.emplace(source.take());
    DraftHeadOptions options = GetParam().head;
    options.strong = true;
    ASSERT_TRUE(write_draft_head(source_->gguf, dir_.path("head.gguf"), options).ok());
    auto graph = arch::build_graph(*source_, diags);
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    graph_.emplace(graph.take());
  }
  // The model's hidden states of each token that the head reads, by the interpreter.
  std::vector<std::vector<float>> states() {
    auto model = reference::Interpreter::make(*graph_, source_->gguf);
    EXPECT_TRUE(model.ok()) << model.error().message;
    std::vector<int32_t> taps = GetParam().head.layers;
    if (taps.empty()) taps = {0, 1, graph_->facts.layers};
    std::vector<std::vector<float>> all;
    for (const int32_t token : kTokens) {
      model->next(token);
      std::vector<float>& one = all.emplace_back();
      for (const int32_t tap : taps) {
        const std::vector<float>& stream = model->streams()[static_cast<size_t>(tap)];
        one.insert(one.end(), stream.begin(), stream.end());
      }
    }
    return all;
  }
  static void expect_near(std::span<const float> got, std::span<const double> wanted, double part,
                          const std::string& what) {
    ASSERT_EQ(got.size(), wanted.size());
    double most = 0;
    for (const double value : wanted) most = std::max(most, std::abs(value));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], wanted[i], part * most) << what << ": " << i;
    }
  }

  const TempDir dir_;
  std::optional<input::ModelSource> source_;
  std::optional<ir::ModuleGraph> graph_;
};

TEST_P(DraftHeads, GiveTheLogitsOfTheirFormulas) {
  if (!source_) return;
  const auto head_file = input::GgufFile::open(dir_.path("head.gguf"), {.tables = true});
  ASSERT_TRUE(head_file.ok()) << head_file.error().message;
  const std::vector<std::vector<float>> wanted_states = states();
  const size_t count = kTokens.size(), width = wanted_states[0].size();
  HostGpuLog log;
  for (const char* rules : GetParam().rules) {
    SCOPED_TRACE(rules);
    std::vector<std::string> more = placed(rules);
    more.insert(more.end(), {"--draft", dir_.path("head.gguf")});
    compile_with(source_->gguf.path(), dir_.path("m.ktxplan"), more);
    if (HasFatalFailure()) return;
    EngineOptions options;
    options.precision = runtime::Precision::Exact;
    options.open_gpu = HostGpu::opener({}, &log);
    const auto engine = open_engine(dir_.path("m.ktxplan"), options);
    options.drafter = true;
    options.all_logits = true;
    const auto drafter = open_engine(dir_.path("m.ktxplan"), options);
    ASSERT_TRUE(engine && drafter);
    ASSERT_EQ(engine->kept_width(), static_cast<int64_t>(width));
    const plan::PlanFacts& facts = drafter->plan().facts;
    ASSERT_EQ(facts.given_states(), static_cast<int64_t>(width));
    const auto given = static_cast<size_t>(facts.given_width);

    std::vector<float> rows(width * count);
    runtime::Sequence text = engine->new_sequence();
    for (size_t at = 0; at < count; at += 5) {
      const auto tokens = std::span(kTokens).subspan(at, std::min<size_t>(5, count - at));
      const BatchItem item{&text, tokens, Want::None};
      const auto done = engine->forward({&item, 1});
      ASSERT_TRUE(done.ok()) << done.error().message;
      const auto read = engine->hidden_of_tokens(0, std::ssize(tokens));
      ASSERT_TRUE(read.ok()) << read.error().message;
      std::ranges::copy(*read, rows.begin() + static_cast<ptrdiff_t>(at * width));
    }
    for (size_t t = 0; t < count; ++t) {
      const std::vector<double> right(wanted_states[t].begin(), wanted_states[t].end());
      expect_near(std::span(rows).subspan(t * width, width), right, 1e-4,
                  fmt::format("states of token {}", t));
      if (HasFatalFailure()) return;
    }

    for (const size_t chunk : {count, size_t{1}, size_t{3}}) {
      DraftHeadReference reference(*head_file, source_->gguf);
      runtime::Sequence drafts = drafter->new_sequence();
      std::span<const float> logits;
      for (size_t at = 1; at < count; at += chunk) {
        const auto tokens = std::span(kTokens).subspan(at, std::min(chunk, count - at));
        std::vector<float> hidden(tokens.size() * given);
        for (size_t t = 0; t < tokens.size(); ++t) {
          const auto row = rows.begin() + static_cast<ptrdiff_t>((at + t - 1) * width);
          std::copy_n(row, width, hidden.begin() + static_cast<ptrdiff_t>(t * given));
        }
        BatchItem item{&drafts, tokens, Want::All};
        item.hidden = hidden;
        const auto done = drafter->forward({&item, 1});
        ASSERT_TRUE(done.ok()) << done.error().message;
        for (size_t t = 0; t < tokens.size(); ++t) {
          const auto row = rows.begin() + static_cast<ptrdiff_t>((at + t - 1) * width);
          const std::vector<double> states(row, row + static_cast<ptrdiff_t>(width));
          expect_near(drafter->logits(static_cast<int64_t>(t)), reference.next(tokens[t], states),
                      1e-4, fmt::format("token {}", at + t));
          if (HasFatalFailure()) return;
        }
      }
      // Draft tokens further on read what the head's own layer gave.
      int64_t last =
          std::min<int64_t>(chunk, (count - 1) % chunk == 0 ? chunk : (count - 1) % chunk) - 1;
      for (const int32_t token : kFurther) {
        std::vector<float> hidden(given);
        const auto own = drafter->hidden_of_tokens(last, 1);
        ASSERT_TRUE(own.ok()) << own.error().message;
        std::ranges::copy(*own, hidden.begin() + static_cast<ptrdiff_t>(width));
        BatchItem item{&drafts, {&token, 1}, Want::All};
        item.hidden = hidden;
        const auto done = drafter->forward({&item, 1});
        ASSERT_TRUE(done.ok()) << done.error().message;
        expect_near(drafter->logits(0), reference.further(token), 1e-3,
                    fmt::format("draft token {}", token));
        if (HasFatalFailure()) return;
        last = 0;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DraftHeads,
    ::testing::Values(
        Variant{"fewer_tokens", "llama", {"cpu-only.yaml", "all-gpu.yaml"}, {.every = 3}},
        Variant{"all_tokens", "llama", {"cpu-only.yaml"}, {}},
        Variant{"tied", "qwen2", {"cpu-only.yaml"}, {}},
        Variant{"normed_states",
                "llama",
                {"cpu-only.yaml", "all-gpu.yaml"},
                {.every = 2, .given_norm = true}},
        Variant{"normed_stream",
                "llama",
                {"cpu-only.yaml", "all-gpu.yaml"},
                {.every = 2, .normed_stream = true}},
        Variant{"own_width",
                "llama",
                {"cpu-only.yaml", "all-gpu.yaml"},
                {.every = 4, .own_embedding = true, .width = 128}},
        Variant{"other_layers", "llama", {"cpu-only.yaml"}, {.every = 2, .layers = {2, 3, 2, 0}}},
        Variant{"one_layer", "llama", {"all-gpu.yaml"}, {.every = 2, .layers = {1}}},
        Variant{"scaled_positions", "llama", {"cpu-only.yaml"}, {.every = 2, .rope_factors = true}},
        Variant{"experts", "qwen3moe", {"cpu-only.yaml", "moe-experts-on-cpu.yaml"}, {.every = 3}},
        Variant{"latent_attention", "deepseek3", {"moe-experts-on-cpu.yaml"}, {.every = 3}},
        Variant{"windows", "gemma3", {"cpu-only.yaml", "all-gpu.yaml"}, {.every = 3}}),
    [](const auto& info) { return info.param.name; });

// --- what does not fit --------------------------------------------------------------------------

class DraftHeadMistakes : public ::testing::Test {
 protected:
  static std::string path() { return test_model_gguf("llama"); }
  // What ktx-compile says of such a head.
  std::string error(const DraftHeadOptions& options, const std::string& model = "llama") {
    const auto gguf = input::GgufFile::open(path());
    EXPECT_TRUE(gguf.ok());
    EXPECT_TRUE(write_draft_head(*gguf, dir_.path("head.gguf"), options).ok());
    return error_of({test_model_gguf(model), "--draft", dir_.path("head.gguf")});
  }
  std::string error_of(std::vector<std::string> more) {
    std::vector<std::string> line = {ktx_compile(), "-q", "-o", dir_.path("x.ktxplan")};
    line.insert(line.end(), more.begin(), more.end());
    const Finished finished = run_program(line);
    EXPECT_EQ(finished.status, 1) << finished.err;
    EXPECT_FALSE(std::filesystem::exists(dir_.path("x.ktxplan")));
    EXPECT_FALSE(std::filesystem::exists(dir_.path("x.ktxplan.drafter")));
    return finished.err;
  }
  static auto without(const std::string& what) {
    return [what](const std::string& key) { return key == what; };
  }
  const TempDir dir_;
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(DraftHeadMistakes, AreNamed) {
  EXPECT_SAYS(error({.layers = {0, 1, 4}}), "names layer 4 of a model of 3 layers");
  EXPECT_SAYS(error({.layers = {0, -1, 2}}), "names layer -1 of a model of 3 layers");
  EXPECT_SAYS(error({.leaves_out = without("target_layers")}),
              "key 'eagle3.target_layers' is missing, expected the 1 to 8 layers of the model");
  EXPECT_SAYS(error({.every = 2, .edit_map = [](auto& map) { map[5] = 2048; }}),
              "tensor 'd2t': logit 5 is of token 2048, but the model has tokens 0 to 2047");
  EXPECT_SAYS(error({.every = 2, .edit_map = [](auto& map) { map[5] = int64_t{1} << 40; }}),
              "logit 5 is of token 1099511627776");
  EXPECT_SAYS(error({.every = 2, .edit_map = [](auto& map) { map[5] = -3; }}),
              "logit 5 is of token -3");
  EXPECT_SAYS(error({.every = 2, .edit_map = [](auto& map) { map[5] = map[2]; }}),
              "as one before it is; where it holds differences of ids");
  EXPECT_SAYS(error({.every = 2, .edit_map = [](auto& map) { map.resize(3000); }}),
              "names 3000 tokens, but the model has 2048");
  EXPECT_SAYS(error({.every = 2, .edit_map = [](auto& map) { map.pop_back(); }}),
              "tensor 'output.weight'");
  EXPECT_SAYS(error({.every = 2, .leaves_out = without("output.weight")}),
              "tensor 'output.weight' is missing, and 'd2t' says");
  EXPECT_SAYS(error({.every = 2, .leaves_out = without("d2t")}), "tensor 'output.weight'");
  EXPECT_SAYS(error({.leaves_out = without("fc.weight")}), "fc.weight");
  EXPECT_SAYS(error({.leaves_out = without("blk.0.attn_norm_2.weight")}), "attn_norm_2");
  EXPECT_SAYS(error({.width = 128}), "the head is 128 wide and the model 256");
  EXPECT_SAYS(error({.given_norm = true, .leaves_out = without("enc.output_norm.weight")}),
              "enc.output_norm.weight");
}

TEST_F(DraftHeadMistakes, OfOtherModelsAreSeen) {
  const auto gguf = input::GgufFile::open(path());
  ASSERT_TRUE(gguf.ok());
  ASSERT_TRUE(write_draft_head(*gguf, dir_.path("right.gguf")).ok());
  const auto head = input::GgufFile::open(dir_.path("right.gguf"));
  ASSERT_TRUE(head.ok());
  // The head with a key changed.
  const auto error_with =
      [&](std::string_view key,
          const std::function<void(input::GgufWriter&, const input::GgufValue&)>& put) {
        input::GgufWriter writer;
        for (const input::GgufValue& value : head->metadata()) {
          value.key == key ? put(writer, value) : writer.copy(value);
        }
        for (const input::GgufTensor& tensor : head->tensors()) writer.copy(tensor);
        EXPECT_TRUE(writer.write(dir_.path("other.gguf")).ok());
        return error_of({path(), "--draft", dir_.path("other.gguf")});
      };
  EXPECT_SAYS(error_with("eagle3.target_hidden_size",
                         [](auto& writer, const auto& value) {
                           writer.add_u32(std::string(value.key), 4096);
                         }),
              "key 'eagle3.target_hidden_size' is 4096, but hidden states of LlamaForCausalLM have "
              "256 elements");
  EXPECT_SAYS(error_with("tokenizer.ggml.tokens",
                         [](auto& writer, const auto& value) {
                           const auto views = *value.strings();
                           std::vector<std::string> tokens(views.begin(), views.end());
                           tokens[300] = "another";
                           writer.add_strings(std::string(value.key), tokens);
                         }),
              "its tokenizer is not the model's: token 300 is 'another' and there '");
}

// A file that lies of its head is not opened.
TEST_F(DraftHeadMistakes, OfPlansAreSeen) {
  const auto gguf = input::GgufFile::open(path());
  ASSERT_TRUE(gguf.ok());
  ASSERT_TRUE(write_draft_head(*gguf, dir_.path("head.gguf"), {.every = 2}).ok());
  compile_with(path(), dir_.path("m.ktxplan"), {"--draft", dir_.path("head.gguf")});
  if (HasFatalFailure()) return;
  const auto plan = plan::PlanFile::open(dir_.path("m.ktxplan"), {.drafter = true});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const plan::PlanRecords right(plan->view());
  ASSERT_TRUE(plan::verify_steps(right.view()).ok());
  const std::vector<int32_t> tokens(plan->view().draft_tokens.begin(),
                                    plan->view().draft_tokens.end());
  ASSERT_EQ(tokens.size(), 1024u);
  using Facts = plan::PlanFacts;
  struct Lie {
    std::function<void(Facts&, std::vector<int32_t>&)> tell;
    const char* error;
  };
  const Lie lies[] = {
      {[](Facts& f, auto&) { f.given_width -= 1; }, "1023 floats come with each token"},
      {[](Facts& f, auto&) { f.given_width = 0; }, "0 floats come with each token"},
      {[](Facts& f, auto&) { f.given_taps.clear(); }, "no hidden states of a model are among"},
      {[](Facts& f, auto&) { f.hidden_values = {1u << 30}; }, "hidden states are value 1073741824"},
      {[](Facts& f, auto&) { f.hidden_values = {0}; }, "is not the hidden states of 256 elements"},
      {[](Facts& f, auto&) { f.hidden_values.push_back(f.hidden_values[0]); },
       "keeps more than one hidden state of its own"},
      {[](Facts& f, auto&) { f.draft_vocab = 1023; }, "is not the logits of 1023 tokens"},
      {[](Facts&, auto& tokens) { tokens.pop_back(); }, "has 1023 tokens for 1024 logits"},
      {[](Facts&, auto& tokens) { tokens[7] = 2048; }, "has token 2048 of 2048"},
      {[](Facts&, auto& tokens) { tokens[7] = -1; }, "has token -1 of 2048"},
      {[](Facts&, auto& tokens) { tokens[7] = tokens[6]; }, "or has it twice"},
  };
  for (const Lie& lie : lies) {
    plan::PlanRecords records(plan->view());
    std::vector<int32_t> map = tokens;
    lie.tell(records.facts, map);
    plan::PlanView view = records.view();
    view.draft_tokens = map;
    const Status checked = plan::verify_steps(view);
    ASSERT_FALSE(checked.ok()) << lie.error;
    EXPECT_SAYS(checked.error().message, lie.error);
  }
}

class DraftRules : public DraftHeadMistakes {
 protected:
  void SetUp() override {
    const auto gguf = input::GgufFile::open(path());
    ASSERT_TRUE(gguf.ok());
    ASSERT_TRUE(write_draft_head(*gguf, dir_.path("head.gguf"), {.every = 2}).ok());
  }
  // Whether the model, or with `drafter` its head, has steps on the GPU.
  bool has_steps_on_gpu(bool drafter) const {
    const auto plan = plan::PlanFile::open(dir_.path("m.ktxplan"), {.drafter = drafter});
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return std::ranges::any_of(plan->view().steps, [&](const plan::StepRecord& step) {
      return plan->view().string(step.device) == "cuda:0";
    });
  }
};

TEST_F(DraftRules, PlaceTheHeadAlone) {
  const std::string rules = source_dir() + "/rules/";
  const std::string target = "--target=" + source_dir() + "/targets/h200.yaml";
  for (const bool gpu : {false, true}) {
    compile_with(path(), dir_.path("m.ktxplan"),
                 {target, rules + (gpu ? "cpu-only.yaml" : "all-gpu.yaml"), "--draft",
                  dir_.path("head.gguf"), "--draft-rules",
                  rules + (gpu ? "all-gpu.yaml" : "cpu-only.yaml")});
    if (HasFatalFailure()) return;
    EXPECT_EQ(has_steps_on_gpu(true), gpu);
    EXPECT_EQ(has_steps_on_gpu(false), !gpu);
  }
}

TEST_F(DraftRules, MistakesHaveTheirPlace) {
  dir_.write("r.yaml", "- match: {name: \"^model.layers.7\"}\n  replace: {device: cpu}\n");
  EXPECT_SAYS(
      error_of({path(), "--draft", dir_.path("head.gguf"), "--draft-rules", dir_.path("r.yaml")}),
      "the drafter: " + dir_.path("r.yaml") + ":1:");
  const auto usage = [&](std::vector<std::string> more) {
    std::vector<std::string> line = {ktx_compile(),          path(),          "-o",
                                     dir_.path("x.ktxplan"), "--draft-rules", dir_.path("r.yaml")};
    line.insert(line.end(), more.begin(), more.end());
    const Finished finished = run_program(line);
    EXPECT_EQ(finished.status, 2);
    return finished.err;
  };
  EXPECT_SAYS(usage({}), "--draft-rules places the drafter that --draft names, and none is named");
  EXPECT_SAYS(usage({"--draft", "mtp"}), "rules of the model place the layer of --draft mtp");
}

TEST_F(DraftHeadMistakes, AHeadIsNoModel) {
  const auto gguf = input::GgufFile::open(path());
  ASSERT_TRUE(gguf.ok());
  for (const int every : {0, 3}) {  // with a map of its tokens, whose type no model has
    ASSERT_TRUE(write_draft_head(*gguf, dir_.path("head.gguf"),
                                 {.every = every, .leaves_out = without("x")})
                    .ok());
    EXPECT_SAYS(error_of({dir_.path("head.gguf")}),
                "this is a draft head (EAGLE-3), not a causal language model; give the GGUF of the "
                "model that it drafts for, and this file with --draft [KTX-C002]");
  }
}

}  // namespace
}  // namespace ktx::testing
