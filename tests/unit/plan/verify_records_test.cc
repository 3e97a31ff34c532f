// Every check of a record by one lie, as check_step_records_test.cc does for steps.
#include "lib/plan/verify_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/temp_dir.h"
#include "tests/unit/plan/plan_records.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kFar = 1u << 20;

TEST(VerifyRecords, FindsOneLieInEachRecord) {
  const ktx::testing::TempDir dir;
  ASSERT_TRUE(write_plan(make_tiny_plan(), dir.path("p")).ok());
  const PlanFile plan = PlanFile::open(dir.path("p")).take();
  ASSERT_TRUE(verify_records(PlanRecords(plan.view()).view()).ok());
  const struct {
    std::function<void(PlanRecords&)> tell;
    const char* message;
  } kLies[] = {
      {[](PlanRecords& r) { r.shards.clear(); }, "the gguf-header section has no shard"},
      {[](PlanRecords& r) { r.shards[0].header_offset = kFar; }, "header at 1048576 with"},
      {[](PlanRecords& r) { r.shards[0].file_size = 1; }, "file of 1 bytes with a header of"},
      {[](PlanRecords& r) { r.shards[0].file_size = uint64_t{1} << 56; },
       "file of 72057594037927936 bytes"},
      {[](PlanRecords& r) { r.tensors[1].name = kFar; }, "GGUF tensor 1: name 1048576"},
      {[](PlanRecords& r) { r.tensors[1].shard = 1; }, "shard 1 of 1"},
      {[](PlanRecords& r) { r.tensors[1].dtype = 200; }, "': element type 200"},
      {[](PlanRecords& r) { r.tensors[1].rows += 1; }, "rows of"},
      {[](PlanRecords& r) { r.tensors[1].rows = -1; }, "-1 rows of"},
      {[](PlanRecords& r) { r.tensors[1].offset = 0; }, "bytes at 0 of a file of"},
      {[](PlanRecords& r) { r.tensors[1].offset = uint64_t{1} << 55; }, "of a file of"},
      {[](PlanRecords& r) { r.segments[0].device = kFar; }, "segment 0: device 1048576"},
      {[](PlanRecords& r) { r.segments.pop_back(); }, "weights belong to no segment"},
      {[](PlanRecords& r) {
         r.sections.push_back(r.sections.back());
         r.sections.back().id = static_cast<uint32_t>(SectionId::WeightData);
       },
       "belongs to no segment"},
      {[](PlanRecords& r) {
         for (SectionEntry& section : r.sections) {
           if (section.offset == r.segments[0].offset) section.offset += 64;
         }
         r.segments[0].offset += 64;
       },
       "is no multiple of"},
      {[](PlanRecords& r) { r.blobs[1].name = kFar; }, "weight 1: name 1048576"},
      {[](PlanRecords& r) { r.blobs[1].rows = -1; }, ", -1"},
      {[](PlanRecords& r) { r.blobs[1].cols = kMaxDim + 1; }, "shape [67108865"},
      {[](PlanRecords& r) { r.blobs[1].matrices = kMaxHeads + 1; }, ", 65537]"},
      {[](PlanRecords& r) { r.blobs[1].rows = r.blobs[1].cols = kMaxDim; },
       "shape [67108864, 67108864"},
      {[](PlanRecords& r) { r.blobs[0].slice_count = kFar; }, "slices 0 to 1048576 of"},
      {[](PlanRecords& r) { r.blobs[0].slice_count = 0; },
       "has no source and is not a constant in F32"},
      {[](PlanRecords& r) { r.blobs.back().slice_count = 0; },
       "has no source and is not a constant in F32"},  // carried
      {[](PlanRecords& r) { r.tensors[r.slices[0].tensor].dtype += 1; }, "bytes"},
      {[](PlanRecords& r) { r.slices[0].row_count -= 1; }, "its slices have 47 rows of 48"},
      {[](PlanRecords& r) { r.slices[0].blob = 1; }, "a slice of weight 1"},
      {[](PlanRecords& r) { r.slices.push_back(r.slices.back()); }, "slices belong to no weight"},
      {[](PlanRecords& r) { r.values[1].name = kFar; }, "value 1: name 1048576"},
      {[](PlanRecords& r) { r.values[1].type = 9; }, "type 9, rows"},
      {[](PlanRecords& r) { r.values[1].rows = 9; }, "rows 9"},
      {[](PlanRecords& r) { r.values[1].rows_per_row = 0; }, "0 rows of"},
      {[](PlanRecords& r) { r.value("nq").width = 63; }, "63 int8 or BF16 elements"},
      {[](PlanRecords& r) { r.operands[0].width = 0; }, "operand 0: elements 0 to 0"},
      {[](PlanRecords& r) { r.slots[0].device = kFar; }, "kv slot 0: device 1048576"},
      {[](PlanRecords& r) { r.slots[0].key_dim = 0; }, "2 heads of 0 and 32"},
      {[](PlanRecords& r) { r.slots[0].value_dim = -1; }, "2 heads of 32 and -1"},
      {[](PlanRecords& r) { r.slots[0].kv_heads = 1 << 16, r.slots[0].key_dim = 1 << 10; },
       "65536 heads of 1024"},
      {[](PlanRecords& r) { r.slots[0].window = -1; }, "a window of -1"},
      {[](PlanRecords& r) { r.slots[0].window = 2 << kSlotKindShift; }, "a window of 268435456"},
      {[](PlanRecords& r) { r.chunks[0].chunk = 1; }, "chunk 0 is not chunk 0 of segment 0"},
      {[](PlanRecords& r) { r.chunks[0].segment = 1; }, "chunk 0 is not chunk 0 of segment 0"},
      {[](PlanRecords& r) { r.chunks.pop_back(); }, "is not chunk 0 of segment"},
      {[](PlanRecords& r) { r.chunks.push_back(r.chunks.back()); }, "chunks, expected"},
  };
  for (const auto& lie : kLies) {
    PlanRecords r(plan.view());
    lie.tell(r);
    const Status status = verify_records(r.view());
    EXPECT_THAT(status.ok() ? "" : status.error().message, HasSubstr(lie.message));
  }
}

// Rows of a weight in another format are the tensor's own, and only where the plan says so.
TEST(VerifyRecords, RoundedRowsAreRowsOfTheirTensor) {
  const ktx::testing::TempDir dir;
  ASSERT_TRUE(write_plan(make_tiny_plan(), dir.path("p")).ok());
  const PlanFile plan = PlanFile::open(dir.path("p")).take();
  // The first weight is Q8_0; its tensor becomes F16 of the same rows.
  const auto error = [&](const std::function<void(PlanRecords&, SliceRecord&)>& tell) {
    PlanRecords r(plan.view());
    GgufTensorRecord& tensor = r.tensors[r.slices[0].tensor];
    tensor.dtype = static_cast<uint16_t>(DType::F16);
    tensor.size = static_cast<uint64_t>(tensor.rows * tensor.row_elems * 2);
    r.shards[0].file_size += tensor.size;
    r.facts.lossy = true;
    tell(r, r.slices[0]);
    const Status status = verify_records(r.view());
    return status.ok() ? "" : status.error().message;
  };
  const auto refused = HasSubstr("is not in the format of its tensor");
  EXPECT_EQ(error([](PlanRecords&, SliceRecord&) {}), "");
  EXPECT_THAT(error([](PlanRecords& r, SliceRecord&) { r.facts.lossy = false; }), refused);
  EXPECT_THAT(error([](PlanRecords&, SliceRecord& s) { s.first_row = -1; }), refused);
  EXPECT_THAT(error([](PlanRecords&, SliceRecord& s) { s.first_row = 49; }), refused);
  EXPECT_THAT(error([](PlanRecords&, SliceRecord& s) { s.first_row = 1; }), refused);
}

}  // namespace
}  // namespace ktx::plan
