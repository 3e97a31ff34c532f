// Stages: which steps share one, and that the order of the items inside does not change a
// result.
#include "lib/ops/step_stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ktx {
namespace {

StepAccess read(int32_t value, bool by_row = true) {
  return {value, value, 0, 8, false, by_row};
}
StepAccess write(int32_t value, bool by_row = true) {
  return {value, value, 0, 8, true, by_row};
}
StepFacts step(StepOp op, std::vector<StepAccess> accesses, int32_t device = 0) {
  return {op, device, RowKind::Token, std::move(accesses)};
}
StepFacts product(int32_t in, int32_t out) {
  return step(StepOp::Matmul, {read(in, false), write(out, false)});
}

// "0,1|2;3": two stages, the first of a part of steps 0 and 1 and one of step 2; a
// prelude stands in parentheses.
std::string text(const std::vector<Stage>& stages) {
  std::string out;
  for (const Stage& stage : stages) {
    if (!out.empty()) out += ';';
    for (int32_t s : stage.prelude) out += "(" + std::to_string(s) + ")";
    for (const auto& part : stage.parts) {
      if (&part != &stage.parts[0]) out += '|';
      for (int32_t s : part) out += (s == part[0] ? "" : ",") + std::to_string(s);
    }
  }
  return out;
}

TEST(StepStages, ALayerOfAttentionAndMlpHasNineStagesOfWhichFourAreOneItemInDecode) {
  enum : int32_t { X, N, NQ, Q, K, V, Cache, A, AQ, G, U, UQ };
  const std::vector<StepFacts> layer = {
      step(StepOp::RmsNorm, {read(X), write(N)}),
      step(StepOp::Quantize, {read(N), write(NQ)}),
      product(NQ, Q),
      product(NQ, K),
      product(NQ, V),
      step(StepOp::Rope, {read(Q), write(Q)}),
      step(StepOp::Rope, {read(K), write(K)}),
      step(StepOp::KvStore, {read(K), read(V), write(Cache, false)}),
      step(StepOp::Attention, {read(Q, false), read(Cache, false), write(A, false)}),
      step(StepOp::Quantize, {read(A), write(AQ)}),
      product(AQ, X),
      step(StepOp::RmsNorm, {read(X), write(N)}),
      step(StepOp::Quantize, {read(N), write(NQ)}),
      product(NQ, G),
      product(NQ, U),
      step(StepOp::Glu, {read(G), read(U), write(U)}),
      step(StepOp::Quantize, {read(U), write(UQ)}),
      product(UQ, X)};
  EXPECT_EQ(text(find_stages(layer)), "0,1;2|3|4;5,6,7;8;9;10;11,12;13,14,15,16;17");
}

TEST(StepStages, ASharedExpertRunsBesideTheRoutedOnes) {
  enum : int32_t { X, N, S, Ids, Order, H, SG, SU, Out };
  const std::vector<StepFacts> layer = {
      product(N, S),
      step(StepOp::Router, {read(S), write(Ids)}),
      step(StepOp::GroupExperts, {read(Ids, false), write(Order, false)}),
      step(StepOp::ExpertsGateUp, {read(N, false), read(Order, false), write(H, false)}),
      step(StepOp::ExpertsDown, {read(H, false), read(Order, false), write(X, false)}),
      product(N, SG),
      product(N, SU),
      step(StepOp::Glu, {read(SG), read(SU), write(SU)}),
      product(SU, Out),
      step(StepOp::Add, {read(X), read(Out), write(X)})};
  EXPECT_EQ(text(find_stages(layer)), "0|5,6,7;1|8;(2)3;4;9");
}

TEST(StepStages, AnInt8FormFollowsExpertsByColumnsWhenItsRowsAreTheirs) {
  enum : int32_t { X, H, HQ };
  std::vector<StepFacts> steps = {step(StepOp::ExpertsGateUp, {read(X, false), write(H, false)}),
                                  step(StepOp::Quantize, {read(H), write(HQ)})};
  steps[0].inner_rows = steps[1].inner_rows = 4;
  EXPECT_EQ(text(find_stages(steps)), "0,1");
  steps[1].inner_rows = 2;
  EXPECT_EQ(text(find_stages(steps)), "0;1");
  EXPECT_EQ(quantize_inner_rows({4, 64}, 256, 256), 4);
  EXPECT_EQ(quantize_inner_rows({4, 32}, 256, 256), 0);
  EXPECT_EQ(quantize_inner_rows({4, 64}, 256, 128), 0);
  EXPECT_EQ(quantize_inner_rows({1, 0}, 256, 256), 1);
}

TEST(StepStages, AProductsOtherReadersKeepItApart) {
  enum : int32_t { X, Y, YQ };
  // Nothing but a glu may go on with a plain product's columns.
  EXPECT_EQ(text(find_stages(std::vector<StepFacts>{product(X, Y),
                                                    step(StepOp::Quantize, {read(Y), write(YQ)})})),
            "0;1");
}

TEST(StepStages, RowsThatAreNotTheirOwnEndAPart) {
  enum : int32_t { X, Y, Z };
  // gather_rows reads rows that another thread may not have written yet.
  EXPECT_EQ(
      text(find_stages(std::vector<StepFacts>{step(StepOp::RmsNorm, {read(X), write(Y)}),
                                              step(StepOp::GatherRows, {read(Y, false), write(Z)}),
                                              step(StepOp::RmsNorm, {read(Z), write(Z)})})),
      "0;1,2");
}

TEST(StepStages, ValuesThatShareMemoryAreKeptApart) {
  StepAccess second = write(2);
  second.memory = 0;  // the buffer of value 0, which step 0 reads row by row
  EXPECT_EQ(text(find_stages(std::vector<StepFacts>{step(StepOp::Glu, {read(0), write(1)}),
                                                    step(StepOp::Quantize, {read(1), second})})),
            "0;1");
}

TEST(StepStages, DevicesTakeTurns) {
  EXPECT_EQ(text(find_stages(std::vector<StepFacts>{
                step(StepOp::Matmul, {read(0, false), write(1, false)}, 0),
                step(StepOp::Matmul, {read(0, false), write(2, false)}, 1),
                step(StepOp::Matmul, {read(0, false), write(3, false)}, 0)})),
            "0;1;2");
}

std::vector<StepFacts> in_order_of(const std::vector<Stage>& stages,
                                   const std::vector<StepFacts>& steps) {
  std::vector<StepFacts> ordered;
  for (const Stage& stage : stages) {
    for (int32_t s : stage.prelude) ordered.push_back(steps[s]);
    for (const auto& part : stage.parts) {
      for (int32_t s : part) ordered.push_back(steps[s]);
    }
  }
  return ordered;
}

// The compiler orders steps by stage and finds the stages again for the memory of their values
// (n-grams of a layer need nothing of the layers before it).
TEST(StepStages, AStepThatNeedsNothingStaysWhereItsStageIsFoundAgain) {
  for (const int before : {3, 11, 12, 13, 30, 100}) {
    std::vector<StepFacts> steps;
    for (int32_t i = 0; i < before; ++i) steps.push_back(product(i, i + 1));
    steps.push_back(step(StepOp::EmbedNgrams, {write(1000)}));
    steps.push_back(product(1000, 1001));
    steps.push_back(product(1000, 1002));
    steps.push_back(step(StepOp::RmsNorm, {read(1001), write(1001)}));
    steps.push_back(step(StepOp::Glu, {read(1001), read(before), write(before)}));
    for (int32_t i = before; i < before + 20; ++i) steps.push_back(product(i, i + 1));
    const std::vector<StepFacts> ordered = in_order_of(find_stages(steps), steps);
    std::vector<int32_t> places;
    for (const Stage& stage : find_stages(ordered)) {
      places.insert(places.end(), stage.prelude.begin(), stage.prelude.end());
      for (const auto& part : stage.parts) places.insert(places.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(std::ranges::is_sorted(places)) << before << ": " << text(find_stages(ordered));
  }
}

// --- any order within a stage gives the result of the steps in order -------------

constexpr int kRows = 3;
constexpr int kValues = 9;    // value v has v % 3 + 1 columns
constexpr int kMemories = 5;  // values v and v + 5 share one
using Memory = std::vector<std::vector<uint64_t>>;

uint64_t mix(uint64_t h, uint64_t x) {
  return (h ^ x) * 0x9E3779B97F4A7C15u + (h >> 29);
}

// Rows of a step, and of its outputs these columns (of a column-wise step's inputs too).
struct Range {
  int row_begin = 0, row_end = kRows;
  int64_t column_begin = 0, column_end = 3;
};

void run(const StepFacts& facts, uint64_t number, const Range& range, Memory& memory) {
  const auto cell = [&](const StepAccess& a, int row, int64_t column) -> uint64_t& {
    return memory[a.memory][row * (a.value % 3 + 1) + column];
  };
  const auto hash = [&](uint64_t h, const StepAccess& a, int row, int64_t from, int64_t to) {
    for (int r = a.by_row ? row : 0; r < (a.by_row ? row + 1 : kRows); ++r) {
      for (int64_t c = from; c < to; ++c) h = mix(h, cell(a, r, c));
    }
    return h;
  };
  const bool by_column = is_column_wise(facts.op);
  for (int row = range.row_begin; row < range.row_end; ++row) {
    std::vector<uint64_t> h(3, mix(number, row));
    for (int64_t c = 0; c < 3; ++c) {
      for (const StepAccess& a : facts.accesses) {
        if (a.write || (by_column && c >= a.end - a.begin)) continue;
        h[c] = by_column ? hash(h[c], a, row, a.begin + c, a.begin + c + 1)
                         : hash(h[c], a, row, a.begin, a.end);
      }
    }
    for (const StepAccess& a : facts.accesses) {
      const int64_t end = std::min(a.end - a.begin, range.column_end);
      for (int64_t c = range.column_begin; a.write && c < end; ++c) {
        cell(a, row, a.begin + c) = mix(h[c], c);
      }
    }
  }
}

TEST(StepStages, AnyOrderWithinAStageGivesTheResultOfTheStepsInOrder) {
  constexpr StepOp kOps[] = {StepOp::RmsNorm,      StepOp::Rope,          StepOp::Matmul,
                             StepOp::GroupExperts, StepOp::ExpertsGateUp, StepOp::GatherRows,
                             StepOp::Matmul,       StepOp::Glu,           StepOp::Quantize};
  std::mt19937_64 random(7);
  const auto pick = [&](int n) { return static_cast<int>(random() % n); };
  int64_t stages_seen = 0, steps_seen = 0, column_parts_seen = 0;
  for (int round = 0; round < 6000; ++round) {
    std::vector<StepFacts> steps(12);
    for (StepFacts& s : steps) {
      s.op = kOps[pick(9)];
      s.inner_rows = pick(4) > 0;
      // Widths of a column-wise step's operands are equal; a small graph meets often.
      const bool column_wise = is_column_wise(s.op);
      for (int i = 0; i < 3; ++i) {
        const int32_t value = column_wise || pick(2) ? 3 * pick(3) + 2 : pick(kValues);
        const int32_t width = value % 3 + 1, from = column_wise ? 0 : pick(width);
        const bool writes = i == 2;
        // An op that is no row-wise one must not read what it writes: its rows are
        // run in any order.
        const int32_t end = column_wise || pick(2) ? width : from + 1 + pick(width - from);
        s.accesses.push_back({value, value % kMemories, from, end, writes,
                              writes ? is_row_wise(s.op) : reads_by_row(s.op)});
      }
      const StepAccess out = s.accesses[2];
      std::erase_if(s.accesses, [&](const StepAccess& a) {
        return !a.write && a.memory == out.memory && (!a.by_row || a.value != out.value);
      });
    }
    Memory expected(kMemories, std::vector<uint64_t>(kRows * 3, 1)), memory = expected;
    for (size_t i = 0; i < steps.size(); ++i) run(steps[i], i, {}, expected);
    const std::vector<Stage> stages = find_stages(steps);
    std::vector<int32_t> seen;
    for (const Stage& stage : stages) {
      for (int32_t s : stage.prelude) run(steps[s], s, {}, memory), seen.push_back(s);
      std::vector<std::pair<size_t, Range>> items;  // by part
      for (size_t p = 0; p < stage.parts.size(); ++p) {
        const bool row_wise = is_row_wise(steps[stage.parts[p][0]].op);
        const bool columns = !row_wise && stage.parts[p].size() > 1;
        column_parts_seen += columns;
        for (int row = 0; row < (row_wise || columns ? kRows : 1); ++row) {
          for (int64_t c = 0; c < (columns ? 3 : 1); ++c) {
            items.push_back({p, {}});
            if (row_wise || columns) items.back().second = {row, row + 1};
            if (columns) items.back().second = {row, row + 1, c, c + 1};
          }
        }
        seen.insert(seen.end(), stage.parts[p].begin(), stage.parts[p].end());
      }
      std::shuffle(items.begin(), items.end(), random);
      for (const auto& [part, range] : items) {
        for (int32_t s : stage.parts[part]) run(steps[s], s, range, memory);
      }
    }
    ASSERT_EQ(memory, expected) << "round " << round << ": " << text(stages);
    std::sort(seen.begin(), seen.end());
    for (size_t i = 0; i < steps.size(); ++i) ASSERT_EQ(seen[i], static_cast<int32_t>(i));
    ASSERT_EQ(seen.size(), steps.size());
    stages_seen += static_cast<int64_t>(stages.size());
    steps_seen += static_cast<int64_t>(steps.size());
  }
  EXPECT_LT(stages_seen, steps_seen * 3 / 4);  // they do share stages
  EXPECT_GT(column_parts_seen, 50);
}

}  // namespace
}  // namespace ktx
