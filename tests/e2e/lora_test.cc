// Adapters on whole models: a base with low-rank terms gives what the model gives that has them
// merged into its F32 weights, each text of a batch has its own, and nothing of a text with one
// adapter is reused for a text with another.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <deque>
#include <iterator>

#include "lib/input/gguf.h"
#include "lib/lora/read_lora.h"
#include "lib/plan/expert_memory.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/engine.h"
#include "tests/support/fused_gguf.h"
#include "tests/support/lora_gguf.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/text_session.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

using runtime::LoraChoice;
using runtime::Precision;

std::string write_model(const TempDir& dir, const char* name, const char* types) {
  const auto config =
      input::HfConfig::parse(read_file(test_model_dir(name) + "/config.json"), "config.json");
  EXPECT_TRUE(config.ok()) << config.error().message;
  const auto writer = synth::synthesise(*config, {.types = types, .strong = true});
  EXPECT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_TRUE(writer->write(dir.path("base.gguf")));
  return dir.path("base.gguf");
}

std::string compile(const std::string& gguf, const std::string& rules = "cpu-only.yaml") {
  const std::string plan = gguf + ".ktxplan";
  const Finished run =
      run_program({ktx_compile(), "-q", gguf, "-o", plan, source_dir() + "/rules/" + rules,
                   "--target=" + source_dir() + "/targets/h200.yaml"});
  EXPECT_EQ(run.status, 0) << run.err;
  return plan;
}

std::unique_ptr<runtime::Engine> open(const std::string& plan, Precision precision,
                                      const std::vector<std::string>& adapters = {},
                                      int threads = 2, std::optional<Isa> isa = {}) {
  runtime::EngineOptions options;
  options.threads = threads;
  options.isa = isa;
  options.precision = precision;
  options.all_logits = true;
  options.max_batch = 8;
  for (const std::string& path : adapters) {
    auto adapter = lora::read_adapter(path);
    EXPECT_TRUE(adapter.ok()) << adapter.error().message;
    if (adapter.ok()) options.lora.push_back(*adapter);
  }
  auto engine = runtime::Engine::open(plan, options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? engine.take() : nullptr;
}

// Logits of all tokens: of most in one pass, then of each one.
std::vector<std::vector<float>> logits_of(runtime::Engine& engine, runtime::Sequence& sequence,
                                          std::span<const int32_t> tokens, size_t first) {
  std::vector<std::vector<float>> rows;
  for (size_t at = 0; at < tokens.size();) {
    const size_t count = at == 0 ? first : 1;
    const runtime::BatchItem item{&sequence, tokens.subspan(at, count), runtime::Want::All};
    const auto done = engine.forward({&item, 1});
    EXPECT_TRUE(done.ok()) << done.error().message;
    for (size_t t = 0; t < count; ++t) {
      const auto row = engine.logits(static_cast<int64_t>(t));
      rows.emplace_back(row.begin(), row.end());
    }
    at += count;
  }
  return rows;
}

std::vector<std::vector<float>> logits_of(runtime::Engine& engine, const LoraChoice& choice,
                                          std::span<const int32_t> tokens, size_t first = 100) {
  runtime::Sequence sequence = engine.new_sequence({}, choice);
  return logits_of(engine, sequence, tokens, std::min(first, tokens.size()));
}

struct Distance {
  double mean = 0;  // of log-probabilities
  int other_best = 0;
};

std::vector<double> log_softmax(const std::vector<float>& row) {
  const double top = *std::ranges::max_element(row);
  double sum = 0;
  for (const float x : row) sum += std::exp(x - top);
  std::vector<double> out;
  for (const float x : row) out.push_back(x - top - std::log(sum));
  return out;
}

Distance distance(const std::vector<std::vector<float>>& a,
                  const std::vector<std::vector<float>>& b) {
  Distance out;
  double count = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const std::vector<double> x = log_softmax(a[i]), y = log_softmax(b[i]);
    for (size_t k = 0; k < x.size(); ++k) out.mean += std::abs(x[k] - y[k]), ++count;
    out.other_best +=
        std::ranges::max_element(x) - x.begin() != std::ranges::max_element(y) - y.begin();
  }
  out.mean /= count;
  return out;
}

struct LoraModel {
  const char* name;
  LoraSpec spec;
  bool fused = false;  // attn_qkv in the file
};

void PrintTo(const LoraModel& model, std::ostream* out) {
  *out << model.name << (model.fused ? "-fused" : "");
}

class LoraReference : public ::testing::TestWithParam<LoraModel> {};

TEST_P(LoraReference, GivesWhatMergedWeightsGive) {
  if (test_model_dir(GetParam().name).empty()) GTEST_SKIP() << "no " << GetParam().name << " here";
  const TempDir dir;
  std::string base = write_model(dir, GetParam().name, "f32");
  if (GetParam().fused) {
    const auto split = input::GgufFile::open(base);
    ASSERT_TRUE(split.ok());
    ASSERT_TRUE(fuse_tensors(*split, base = dir.path("fused.gguf")));
  }
  const auto gguf = input::GgufFile::open(base);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  ASSERT_TRUE(write_lora(*gguf, GetParam().spec, dir.path("a.gguf")));
  ASSERT_TRUE(write_merged(*gguf, {{dir.path("a.gguf"), 0.5}}, dir.path("merged.gguf")));
  const auto engine = open(compile(base), Precision::Exact, {dir.path("a.gguf")});
  const auto merged = open(compile(dir.path("merged.gguf")), Precision::Exact);
  ASSERT_TRUE(engine && merged);
  const std::vector<int32_t> text = random_text(120, 5);
  const auto expected = logits_of(*merged, {}, text);
  const Distance found = distance(logits_of(*engine, {{0, 0.5f}}, text), expected);
  EXPECT_EQ(found.other_best, 0);
  EXPECT_LE(found.mean, 1e-4);
  RecordProperty("mean_difference", std::to_string(found.mean));
  // The adapter matters: without it the model is another one.
  EXPECT_GT(distance(logits_of(*engine, {}, text), expected).mean, 0.05);
}

INSTANTIATE_TEST_SUITE_P(
    All, LoraReference,
    ::testing::Values(
        LoraModel{"llama", {}}, LoraModel{"llama", {}, true},
        LoraModel{"llama", {.rank = 5, .alpha = 0, .dtype = DType::BF16}},
        LoraModel{"llama", {.rank = 64, .tensors = {".attn_v.", ".ffn_down.", "output.weight"}}},
        LoraModel{"qwen2", {.rank = 16}}, LoraModel{"gemma3", {}},
        LoraModel{"qwen3moe", {.tensors = {".attn_q.", ".attn_output.", ".ffn_gate_inp."}}},
        LoraModel{"deepseek2",
                  {.tensors = {".attn_q", ".attn_kv_a_mqa.", ".attn_output.", ".ffn_up.",
                               ".ffn_down_shexp."}}},
        LoraModel{
            "qwen3_next",
            {.rank = 8, .tensors = {".attn_q.", ".attn_gate.", ".ssm_out.", ".ffn_up_shexp."}}}));

class LoraBatch : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (test_model_dir(GetParam()).empty()) GTEST_SKIP() << "no " << GetParam() << " here";
    const std::string base = write_model(dir_, GetParam(), "q4_k_m");
    const auto gguf = input::GgufFile::open(base);
    ASSERT_TRUE(gguf.ok());
    const std::vector<std::string> some = {".attn_q.", ".attn_output.", ".ffn_gate."};
    ASSERT_TRUE(write_lora(*gguf, {.seed = 1, .tensors = some}, dir_.path("a.gguf")));
    ASSERT_TRUE(write_lora(*gguf, {.rank = 16, .seed = 2}, dir_.path("b.gguf")));
    plan_ = compile(base);
    engine_ = open(plan_, Precision::Fast, {dir_.path("a.gguf"), dir_.path("b.gguf")});
    ASSERT_TRUE(engine_);
  }

  const TempDir dir_;
  std::string plan_;
  std::unique_ptr<runtime::Engine> engine_;
};

TEST_P(LoraBatch, GivesEachTextItsOwnAdapters) {
  const std::vector<LoraChoice> choices = {{{0, 1}}, {}, {{1, 1}}, {{1, 1}}, {{0, 0.5f}, {1, -1}},
                                           {{0, 1}}};
  const auto plain = open(plan_, Precision::Fast);
  ASSERT_TRUE(plain);
  std::vector<std::vector<int32_t>> texts;
  std::vector<runtime::Sequence> sequences;
  for (size_t i = 0; i < choices.size(); ++i) {
    texts.push_back(random_text(i == 2 ? 70 : 9 + static_cast<int64_t>(i), i));
    sequences.push_back(engine_->new_sequence({}, choices[i]));
  }
  // Prompts together, then a token of each.
  std::vector<std::vector<std::vector<float>>> found(choices.size());
  for (const bool decode : {false, true}) {
    std::vector<runtime::BatchItem> items;
    for (size_t i = 0; i < choices.size(); ++i) {
      const std::span all(texts[i]);
      items.push_back(
          {&sequences[i], decode ? all.last(1) : all.first(all.size() - 1), runtime::Want::All});
    }
    const auto done = engine_->forward(items);
    ASSERT_TRUE(done.ok()) << done.error().message;
    int64_t row = 0;
    for (size_t i = 0; i < choices.size(); ++i) {
      for (size_t t = 0; t < items[i].tokens.size(); ++t) {
        const auto logits = engine_->logits(row++);
        found[i].emplace_back(logits.begin(), logits.end());
      }
    }
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    EXPECT_EQ(found[i], logits_of(*engine_, choices[i], texts[i])) << i;
    const auto without = logits_of(*plain, {}, texts[i]);
    if (choices[i].empty()) {
      EXPECT_EQ(found[i], without);
    } else {
      EXPECT_GT(distance(found[i], without).mean, 0.01) << i;
    }
  }
}

TEST_P(LoraBatch, DependsOnNoThreadsChunksOrVectors) {
  const std::vector<int32_t> text = random_text(90, 4);
  const LoraChoice choice = {{0, 1}, {1, 0.5f}};
  const auto expected = logits_of(*engine_, choice, text);
  EXPECT_EQ(logits_of(*engine_, choice, text, 7), expected);
  std::vector<std::pair<int, std::optional<Isa>>> others = {{1, {}}, {3, {}}};
  if (detect_isa() >= Isa::Avx2) others.emplace_back(2, Isa::Avx2);
  for (const auto& [threads, isa] : others) {
    const auto engine =
        open(plan_, Precision::Fast, {dir_.path("a.gguf"), dir_.path("b.gguf")}, threads, isa);
    ASSERT_TRUE(engine);
    EXPECT_EQ(logits_of(*engine, choice, text), expected) << threads;
  }
}

TEST_P(LoraBatch, ReusesNothingOfATextWithOtherAdapters) {
  const std::vector<int32_t> text = random_text(200, 3);
  const std::vector<LoraChoice> choices = {{{0, 1}}, {{1, 1}}, {{0, 0.5f}}, {{0, 1}, {1, 1}}, {}};
  for (size_t i = 0; i < choices.size(); ++i) {
    runtime::Sequence sequence = engine_->new_sequence("key", choices[i]);
    EXPECT_EQ(engine_->cache().reuse(sequence, text).tokens, 0) << i;
    const auto rows = logits_of(*engine_, sequence, text, 100);
    EXPECT_EQ(engine_->cache().find(text, "key", choices[i]).found, 0) << i;
    engine_->cache().retire(std::move(sequence), text);
    runtime::Sequence again = engine_->new_sequence("key", choices[i]);
    EXPECT_GE(engine_->cache().reuse(again, text).tokens, 128) << i;
    runtime::Sequence other = engine_->new_sequence("another key", choices[i]);
    EXPECT_EQ(engine_->cache().reuse(other, text).tokens, 0) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LoraBatch, ::testing::Values("llama", "qwen2", "gemma3"));

// That adapter with each number rounded to one format, and stored in it or in F32. Two of its rank
// add nothing: a row of A that B takes nothing of, and a column of B for a row of zeros. Where they
// are `odd`, their numbers are not rounded, so that no half holds the matrix.
std::shared_ptr<LoraAdapter> stored(const LoraAdapter& adapter, DType rounded, DType as,
                                    bool odd = false) {
  auto out = std::make_shared<LoraAdapter>(adapter);
  auto memory = std::make_shared<std::deque<std::vector<std::byte>>>();
  const auto halved = [&](float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return rounded == DType::F16 ? float_to_half(value) : static_cast<uint16_t>(bits >> 16);
  };
  for (LoraPair& pair : out->pairs) {
    for (LoraMatrix* const matrix : {&pair.a, &pair.b}) {
      std::vector<float> values(static_cast<size_t>(matrix->rows * matrix->cols));
      dequantize_row(matrix->dtype, matrix->bytes.data(), std::ssize(values), values.data());
      const auto blank_two = [&] {
        const bool down = matrix == &pair.a;
        for (size_t i = 0; i < values.size(); ++i) {
          const auto cols = static_cast<size_t>(matrix->cols);
          const size_t of_rank = down ? i / cols : i % cols;
          if (of_rank < 2) values[i] = (of_rank == 0) == down ? 1 / 3.f : 0;
        }
      };
      blank_two();
      std::vector<uint16_t> halves;
      std::ranges::transform(values, std::back_inserter(halves), halved);
      const auto bytes = std::as_bytes(std::span(halves));
      if (rounded != DType::F32)
        dequantize_row(rounded, bytes.data(), std::ssize(values), values.data());
      if (odd) blank_two();
      const auto kept = as == DType::F32 ? std::as_bytes(std::span(values)) : bytes;
      matrix->dtype = as;
      matrix->bytes = memory->emplace_back(kept.begin(), kept.end());
    }
  }
  out->file = memory;
  return out;
}

TEST(LoraHalves, TakeHalfOfTheMemoryAlsoWhereTheFileHasF32) {
  const TempDir dir;
  const std::string base = write_model(dir, "llama", "q4_k_m");
  const auto gguf = input::GgufFile::open(base);
  ASSERT_TRUE(gguf.ok());
  ASSERT_TRUE(write_lora(*gguf, {.rank = 16}, dir.path("a.gguf")));
  const auto adapter = lora::read_adapter(dir.path("a.gguf"));
  ASSERT_TRUE(adapter.ok());
  const std::string plan = compile(base);
  const std::vector<int32_t> text = random_text(60, 8);
  struct Run {
    uint64_t bytes = 0;
    std::vector<std::vector<float>> logits;
  };
  const auto run = [&](std::shared_ptr<LoraAdapter> one) -> Run {
    runtime::EngineOptions options;
    options.threads = 2;
    options.all_logits = true;
    options.precision = Precision::Exact;
    options.lora = {std::move(one)};
    auto engine = runtime::Engine::open(plan, options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    if (!engine.ok()) return {};
    return {(*engine)->sizes().lora_bytes, logits_of(**engine, {{0, 1}}, text)};
  };
  // Numbers that are no halves stay as they are.
  const Run exact = run(stored(**adapter, DType::F32, DType::F32));
  for (const DType dtype : {DType::BF16, DType::F16}) {
    const Run halves = run(stored(**adapter, dtype, dtype));
    const Run wide = run(stored(**adapter, dtype, DType::F32));
    EXPECT_EQ(wide.logits, halves.logits);
    EXPECT_EQ(wide.bytes, halves.bytes);
    // The kernels of F32 sum in another order.
    const Run odd = run(stored(**adapter, dtype, DType::F32, true));
    const Distance found = distance(odd.logits, halves.logits);
    EXPECT_EQ(odd.bytes, exact.bytes);
    EXPECT_EQ(found.other_best, 0);
    EXPECT_LE(found.mean, 1e-4);
    EXPECT_NE(exact.logits, halves.logits);
    EXPECT_EQ(exact.bytes, 2 * halves.bytes);
  }
}

// Experts on disk lengthen the chunk, and the rooms for A x with it.
TEST(LoraExperts, HaveRoomForTheirLongerChunk) {
  if (test_model_dir("qwen3moe").empty()) GTEST_SKIP() << "no qwen3moe here";
  const TempDir dir;
  const std::string base = write_model(dir, "qwen3moe", "q4_k_m");
  const auto gguf = input::GgufFile::open(base);
  ASSERT_TRUE(gguf.ok());
  ASSERT_TRUE(write_lora(*gguf, {.rank = 64, .tensors = {".attn_q.", ".attn_output."}},
                         dir.path("a.gguf")));
  const std::string plan = compile(base);
  const std::vector<int32_t> text = random_text(3000, 5);
  std::vector<std::vector<float>> last;
  int64_t chunk = 0;
  for (const bool on_disk : {false, true}) {
    runtime::EngineOptions options;
    options.threads = 2;
    options.ctx = 4096;
    options.max_batch = 1;
    options.lora = {*lora::read_adapter(dir.path("a.gguf"))};
    const auto file = plan::PlanFile::open(plan);
    ASSERT_TRUE(file.ok());
    const plan::ExpertMemory memory = plan::expert_memory(*file->view().program);
    if (on_disk) options.expert_memory_bytes = static_cast<int64_t>(memory.least_bytes());
    auto engine = runtime::Engine::open(plan, options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const runtime::Sizes& sizes = (*engine)->sizes();
    EXPECT_EQ(sizes.expert_slots > 0, on_disk);
    EXPECT_GT(sizes.lora_bytes, 0u);
    EXPECT_GT(sizes.shape.step_tokens, chunk);
    chunk = sizes.shape.step_tokens;
    runtime::Sequence sequence = (*engine)->new_sequence({}, {{0, 1}});
    for (size_t at = 0; at < text.size(); at += static_cast<size_t>(chunk)) {
      const size_t count = std::min(static_cast<size_t>(chunk), text.size() - at);
      const runtime::BatchItem item{&sequence, std::span(text).subspan(at, count),
                                    runtime::Want::Last};
      const auto done = (*engine)->forward({&item, 1});
      ASSERT_TRUE(done.ok()) << done.error().message;
    }
    const auto row = (*engine)->logits(0);
    last.emplace_back(row.begin(), row.end());
  }
  EXPECT_EQ(last[0], last[1]);
}

std::string open_error(const std::string& plan, std::shared_ptr<LoraAdapter> adapter) {
  runtime::EngineOptions options;
  options.threads = 1;
  options.lora = {std::move(adapter)};
  const auto engine = runtime::Engine::open(plan, options);
  return engine.ok() ? "it fits" : engine.error().message;
}

TEST(LoraErrors, NamesLayersOnAGpu) {
  const TempDir dir;
  const std::string base = write_model(dir, "llama", "q8_0");
  const auto gguf = input::GgufFile::open(base);
  ASSERT_TRUE(gguf.ok());
  ASSERT_TRUE(write_lora(*gguf, {.tensors = {".attn_q.", ".ffn_"}}, dir.path("a.gguf")));
  const auto adapter = lora::read_adapter(dir.path("a.gguf"));
  ASSERT_TRUE(adapter.ok());
  const std::string message = open_error(compile(base, "all-gpu.yaml"), *adapter);
  EXPECT_NE(message.find("blk.0.attn_q.weight: model.layers.0.self_attn.q_proj is on cuda:0, and "
                         "adapters are computed on the CPU alone; compile the model with "
                         "rules/cpu-only.yaml"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("(12 of 12 tensors)"), std::string::npos) << message;
  EXPECT_NE(message.find("and 4 more"), std::string::npos) << message;
}

TEST(LoraErrors, NamesWhatDoesNotFit) {
  const TempDir dir;
  const std::string base = write_model(dir, "qwen3moe", "f16");
  const auto gguf = input::GgufFile::open(base);
  ASSERT_TRUE(gguf.ok());
  const std::string plan = compile(base);
  const auto message = [&](const LoraSpec& spec) {
    EXPECT_TRUE(write_lora(*gguf, spec, dir.path("a.gguf")));
    const auto adapter = lora::read_adapter(dir.path("a.gguf"));
    if (!adapter.ok()) return adapter.error().message;
    return open_error(plan, *adapter);
  };
  EXPECT_EQ(message({.tensors = {".attn_q."}}), "it fits");
  const std::string embedding = message({.tensors = {"token_embd."}});
  EXPECT_NE(embedding.find("token_embd.weight: it is the token embedding"), std::string::npos)
      << embedding;

  const TempDir of_another;
  const auto other = input::GgufFile::open(write_model(of_another, "llama", "f16"));
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(write_lora(*other, {}, dir.path("b.gguf")));
  auto adapter = lora::read_adapter(dir.path("b.gguf"));
  ASSERT_TRUE(adapter.ok());
  EXPECT_NE(open_error(plan, *adapter)
                .find("b.gguf: the adapter is for a model of architecture 'llama', "
                      "this one is 'qwen3moe'"),
            std::string::npos);
  (*adapter)->architecture = "";
  const std::string tensors = open_error(plan, *adapter);
  EXPECT_NE(tensors.find("does not fit the plan"), std::string::npos) << tensors;
  EXPECT_NE(tensors.find("blk.0.ffn_up.weight: the model has no such tensor"), std::string::npos)
      << tensors;
  // Shapes, and what is no linear layer.
  const auto pair_of = [&](const std::string& tensor, int64_t inputs, int64_t outputs) {
    (*adapter)->pairs.resize(1);
    LoraPair& pair = (*adapter)->pairs[0];
    static const std::vector<std::byte> zeros(1 << 20);
    pair = {tensor, {DType::F32, 2, inputs, zeros}, {DType::F32, outputs, 2, zeros}, 1, 1};
    return open_error(plan, *adapter);
  };
  EXPECT_NE(
      pair_of("blk.0.attn_q.weight", 8, 8).find("it is for a tensor of 8 x 8, and the model's"),
      std::string::npos);
  EXPECT_NE(
      pair_of("blk.0.attn_norm.weight", 8, 1).find("'rms_norm' step, which takes no low-rank"),
      std::string::npos);
  const std::string experts = pair_of("blk.0.ffn_up_exps.weight", 8, 8);
  EXPECT_NE(experts.find("'experts_gate_up' step"), std::string::npos) << experts;
  EXPECT_NE(experts.find("merge the adapter: ktx-compile --merge"), std::string::npos) << experts;
  const std::string stack = message({.tensors = {".ffn_up_exps."}});
  EXPECT_NE(stack.find("'experts_gate_up' step"), std::string::npos) << stack;
}

}  // namespace
}  // namespace ktx::testing
