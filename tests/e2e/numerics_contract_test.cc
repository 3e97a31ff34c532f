// The numerics contract over whole models: the logits of a token depend on the tokens
// before it alone. The bits of every token of a text are compared between
//
//   chunks of 512 tokens, one thread                     what all others are held to
//   chunks of 1, 7, 64 and 512 tokens, 1, 2 and 4 threads
//   three texts in the same steps, cut unevenly
//   each vector instruction set of this machine
//
// over the seven test models, so that every family's steps and kernels take part, with int8
// and with BF16 activations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "lib/runtime/engine/engine.h"
#include "lib/runtime/sampling/random.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using runtime::BatchItem;
using runtime::Engine;
using runtime::EngineOptions;
using runtime::Forward;
using runtime::Sequence;
using runtime::Want;
using Logits = std::vector<float>;  // rows of all tokens of a text

// The text is longer than a chunk of 512 and than a span of attention.
constexpr int64_t kTokens = 530;
// Chunks of one token take a step each; what they could do wrong shows early.
constexpr int64_t kTokensOneByOne = 70;

std::vector<int32_t> random_text(int64_t tokens, uint64_t seed, int64_t vocab) {
  runtime::Random random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) {
    ids.push_back(static_cast<int32_t>(random.next() % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

struct Subject {
  const char* model;
  const char* inputs;
};

class NumericsContract : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    const std::string gguf = test_model_gguf(GetParam().model);
    if (gguf.empty()) GTEST_SKIP() << "no model " << GetParam().model;
    const std::string inputs = std::string("--inputs=") + GetParam().inputs;
    const Finished run =
        run_program({ktx_compile(), "-q", gguf, inputs, "-o", dir_.path("m.ktxplan"),
                     source_dir() + "/rules/cpu-only.yaml"});
    ASSERT_EQ(run.status, 0) << run.err;
  }

  std::unique_ptr<Engine> open(int threads, std::optional<Isa> isa = {}) const {
    EngineOptions options;
    options.threads = threads;
    options.isa = isa;
    options.ctx = kTokens + 1;
    options.max_batch = 3;
    options.chunk_tokens = 512;
    options.all_logits = true;
    auto engine = Engine::open(dir_.path("m.ktxplan"), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? engine.take() : nullptr;
  }

  // Computes the items in one step and adds each one's rows to its text's.
  static void step(Engine& engine, std::span<const BatchItem> items,
                   std::span<Logits* const> texts) {
    const auto done = engine.forward(items);
    ASSERT_TRUE(done.ok()) << done.error().message;
    ASSERT_EQ(*done, Forward::Done);
    int64_t row = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      for (size_t t = 0; t < items[i].tokens.size(); ++t, ++row) {
        const auto logits = engine.logits(row);
        texts[i]->insert(texts[i]->end(), logits.begin(), logits.end());
      }
    }
  }

  static Logits in_chunks(Engine& engine, std::span<const int32_t> text, size_t chunk) {
    Logits out;
    Logits* const texts[] = {&out};
    Sequence sequence = engine.new_sequence();
    for (size_t at = 0; at < text.size(); at += chunk) {
      const BatchItem item{&sequence, text.subspan(at, std::min(chunk, text.size() - at)),
                           Want::All};
      step(engine, {&item, 1}, texts);
    }
    return out;
  }

  // Whether `found` are the bits that `expected` begins with.
  static ::testing::AssertionResult same_bits(const Logits& found, const Logits& expected,
                                              int64_t vocab) {
    for (size_t i = 0; i < found.size(); ++i) {
      if (i < expected.size() && std::memcmp(&found[i], &expected[i], sizeof(float)) == 0) continue;
      return ::testing::AssertionFailure()
             << "token " << i / static_cast<size_t>(vocab) << ", logit "
             << i % static_cast<size_t>(vocab) << ": " << found[i];
    }
    return found.empty() ? ::testing::AssertionFailure() << "no logits"
                         : ::testing::AssertionSuccess();
  }

  const TempDir dir_;
};

TEST_P(NumericsContract, BitsDependNeitherOnChunksNorOnThreads) {
  const auto one = open(1);
  ASSERT_TRUE(one);
  const int64_t vocab = one->vocab_size();
  const std::vector<int32_t> text = random_text(kTokens, 5, vocab);
  const Logits expected = in_chunks(*one, text, 512);
  for (int threads : {1, 2, 4}) {
    const auto engine = open(threads);
    ASSERT_TRUE(engine);
    for (size_t chunk : {1, 7, 64, 512}) {
      const auto part = std::span(text).first(chunk == 1 ? kTokensOneByOne : kTokens);
      EXPECT_TRUE(same_bits(in_chunks(*engine, part, chunk), expected, vocab))
          << threads << " threads, chunks of " << chunk;
    }
  }
}

TEST_P(NumericsContract, BitsAreTheSameAmongOtherTexts) {
  const auto engine = open(2);
  ASSERT_TRUE(engine);
  const int64_t vocab = engine->vocab_size();
  const std::vector<int32_t> texts[] = {random_text(150, 1, vocab), random_text(260, 2, vocab),
                                        random_text(20, 3, vocab)};
  Logits alone[3], together[3];
  for (int i = 0; i < 3; ++i) alone[i] = in_chunks(*engine, texts[i], 512);
  std::vector<Sequence> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(engine->new_sequence());
  size_t at[3] = {0, 0, 0};
  for (size_t round = 0; at[0] + at[1] + at[2] < 430; ++round) {
    std::vector<BatchItem> items;
    std::vector<Logits*> rows;
    for (size_t i = 0; i < 3; ++i) {
      // One token of a text beside many of another, as when a server decodes.
      const size_t most = (round + i) % 3 == 0 ? 1 + (round * 29) % 60 : 1 + (round + i) % 4;
      const size_t count = std::min(most, texts[i].size() - at[i]);
      if (count == 0) continue;
      items.push_back({&sequences[i], std::span(texts[i]).subspan(at[i], count), Want::All});
      rows.push_back(&together[i]);
      at[i] += count;
    }
    step(*engine, items, rows);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(together[i].size(), alone[i].size());
    EXPECT_TRUE(same_bits(together[i], alone[i], vocab)) << "text " << i;
  }
}

TEST_P(NumericsContract, VectorInstructionSetsAgree) {
  const std::vector<Isa> isas = usable_isas();
  if (isas.size() <= 2) GTEST_SKIP() << "one vector instruction set on this machine";
  Logits expected;
  for (const Isa isa : isas) {
    if (isa == Isa::Scalar) continue;
    const auto engine = open(4, isa);
    ASSERT_TRUE(engine);
    const std::vector<int32_t> text = random_text(kTokens, 5, engine->vocab_size());
    const Logits found = in_chunks(*engine, text, 200);
    if (expected.empty()) expected = found;
    EXPECT_TRUE(same_bits(found, expected, engine->vocab_size())) << name(isa);
  }
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const char* model : present_models()) {
    all.push_back({model, "int8"});
    all.push_back({model, "bf16"});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, NumericsContract, ::testing::ValuesIn(subjects()),
                         [](const auto& info) {
                           return std::string(info.param.model) + "_" + info.param.inputs;
                         });

}  // namespace
}  // namespace ktx::testing
