#include "lib/runtime/cpu/ops/row_runs.h"

#include <gtest/gtest.h>

#include "kernels/matmul/experts.h"
#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"

namespace ktx::runtime {
namespace {

kernels::WeightMatrix matrix(int64_t rows, int64_t cols) {
  return {nullptr, DType::Q4_K, Layout::Panel16, rows, cols, *row_bytes(DType::Q4_K, cols)};
}

std::vector<int64_t> lengths(const RowRuns& runs) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < runs.count(); ++i) all.push_back(runs.end(i) - runs.begin(i));
  return all;
}

// Every row is in one run, runs rise, and all but the last are whole multiples.
void expect_all_rows(const RowRuns& runs, int64_t rows, int64_t multiple) {
  int64_t row = 0;
  for (int64_t i = 0; i < runs.count(); ++i) {
    ASSERT_EQ(runs.begin(i), row);
    ASSERT_GT(runs.end(i), row);
    ASSERT_EQ(row % multiple, 0);
    row = runs.end(i);
  }
  ASSERT_EQ(row, rows);
}

TEST(RowRuns, EvenRunsAreOfOneLengthButTheLast) {
  EXPECT_EQ(lengths(RowRuns::even(100, 32)), (std::vector<int64_t>{32, 32, 32, 4}));
  EXPECT_EQ(RowRuns::even(0, 32).count(), 0);
  EXPECT_EQ(RowRuns().count(), 0);
}

TEST(RowRuns, EachRoundOfTheThreadsTakesHalfOfWhatIsLeft) {
  EXPECT_EQ(lengths(RowRuns::falling(1024, {32, 4096, 16, 2})),
            (std::vector<int64_t>{256, 256, 128, 128, 64, 64, 32, 32, 32, 32}));
  // No run is longer than `most`; as soon as the rows are few, runs fall.
  EXPECT_EQ(lengths(RowRuns::falling(1024, {64, 128, 64, 2})),
            (std::vector<int64_t>{128, 128, 128, 128, 128, 128, 64, 64, 64, 64}));
}

TEST(RowRuns, CountsTheRunsOfTheFirstLength) {
  EXPECT_EQ(RowRuns::falling(1024, {64, 128, 64, 2}).of_first_length(), 6);
  EXPECT_EQ(RowRuns::falling(1024, {32, 4096, 16, 2}).of_first_length(), 2);
  EXPECT_EQ(RowRuns::even(100, 32).of_first_length(), 4);
  EXPECT_EQ(RowRuns().of_first_length(), 0);
}

TEST(RowRuns, StreamsCoverAllRowsWithinTheirLimits) {
  for (const int64_t rows : {1, 16, 500, 512, 768, 2048, 8192, 128256}) {
    for (const int64_t cols : {256, 2048, 8192}) {
      for (const int64_t products : {1, 2, 8}) {
        for (const int64_t others : {1, 8}) {
          for (const int64_t threads : {1, 2, 4, 16, 128, 1000}) {
            for (const int64_t multiple : {16, 32, 128}) {
              for (const int64_t shares : {1, 2}) {
                SCOPED_TRACE(::testing::Message()
                             << rows << " x " << cols << ", " << products << " products, "
                             << threads << " threads, " << multiple);
                const kernels::WeightMatrix w = matrix(rows, cols);
                const RowRuns runs =
                    stream_runs({w, products, products * others, multiple, threads, shares});
                expect_all_rows(runs, rows, multiple);
                const int64_t bytes = products * w.row_bytes;
                int64_t longest = rows;
                for (int64_t i = 0; i < runs.count(); ++i) {
                  const int64_t length = runs.end(i) - runs.begin(i);
                  EXPECT_LE(length, kernels::kExpertsMaxRows);
                  if (threads == 1) continue;
                  EXPECT_LE(length, longest);  // falling
                  EXPECT_LE(length * bytes, (2 << 20) + multiple * bytes);
                  if (i + 1 < runs.count()) {
                    EXPECT_GE(length * bytes, 64 << 10);
                  }
                  longest = length;
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(RowRuns, OneThreadReadsAMatrixInOneStream) {
  EXPECT_EQ(stream_runs({matrix(768, 2048), 2, 16, 128, 1, 1}).count(), 1);
  EXPECT_EQ(stream_runs({matrix(2048, 768), 8, 8, 16, 1, 1}).count(), 1);
}

TEST(RowRuns, ProductsThatWaitForMemoryAreStreams) {
  const auto of = [](DType dtype, Layout layout, int64_t tokens) {
    return is_stream({nullptr, dtype, layout, 64, 256, *row_bytes(dtype, 256)}, tokens);
  };
  EXPECT_TRUE(of(DType::Q4_K, Layout::Panel16, 1));
  EXPECT_TRUE(of(DType::Q4_K, Layout::Rows, 2));
  EXPECT_FALSE(of(DType::Q4_K, Layout::Panel16, 3));
  EXPECT_TRUE(of(DType::F16, Layout::Panel16, 1));
  EXPECT_FALSE(of(DType::F16, Layout::Panel16, 2));  // tiles of 32 rows
  EXPECT_FALSE(of(DType::F32, Layout::Rows, 1));
}

TEST(RowRuns, TheLastRunsOfAStageAreShort) {
  const RowRuns runs = stream_runs({matrix(8192, 2048), 2, 2, 128, 4, 1});  // gate and up
  EXPECT_GE(runs.end(0), 512);
  EXPECT_EQ(runs.end(runs.count() - 1) - runs.begin(runs.count() - 1), 128);
}

}  // namespace
}  // namespace ktx::runtime
