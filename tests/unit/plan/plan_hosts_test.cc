#include "lib/plan/plan_hosts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/plan/describe_hosts.h"
#include "lib/plan/plan_program.h"
#include "lib/plan/plan_reader.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

using ::testing::HasSubstr;

// The tiny plan, which computes all on the first of these hosts.
class PlanHosts : public ::testing::Test {
 protected:
  // The message of the failure, or "".
  std::string open(const std::vector<std::string>& hosts, size_t as = 0, bool with_names = true) {
    TinyPlan tiny = make_tiny_plan();
    for (const std::string& name : hosts) {
      tiny.contents.target.hosts.push_back({name, int64_t{1} << 30});
      if (with_names) tiny.contents.strings.intern(name + "/cpu");
    }
    const std::string path = dir_.path("p");
    EXPECT_TRUE(write_plan(tiny, path).ok());
    auto plan = PlanFile::open(path, {.host = as});
    if (!plan) return plan.error().message;
    plan_ = std::make_unique<PlanFile>(plan.take());
    return "";
  }
  ktx::testing::TempDir dir_;
  std::unique_ptr<PlanFile> plan_;
};

TEST_F(PlanHosts, EachReadsThePlanAsItsOwn) {
  ASSERT_EQ(open({"a", "b"}), "");
  EXPECT_EQ(host_count(plan_->view()), 2u);
  EXPECT_EQ(plan_->view().string(plan_->view().steps[0].device), "cpu");
  EXPECT_EQ(host_of(plan_->view(), "b/cpu"), 1u);
  ASSERT_EQ(open({"a", "b"}, 1), "");
  // There the first host has the other name.
  EXPECT_EQ(plan_->view().string(plan_->view().steps[0].device), "b/cpu");
  EXPECT_EQ(plan_->view().string(plan_->view().parts[0].device), "b/cpu");
  EXPECT_EQ(plan_->view().program->parts[0].device, "b/cpu");
  EXPECT_EQ(host_of(plan_->view(), "b/cpu"), 0u);
  EXPECT_EQ(host_of(plan_->view(), "cpu"), 1u);
  const auto uses = host_uses(plan_->view(), {});
  ASSERT_TRUE(uses.ok());
  EXPECT_GT((*uses)[0].layers, 0);
  EXPECT_EQ((*uses)[1].layers, 0);
  EXPECT_EQ((*uses)[1].cpu.weight_bytes, 0u);
}

TEST_F(PlanHosts, ListsThatAreNotSoundAreRefused) {
  EXPECT_THAT(open({"a"}), HasSubstr("1 hosts, expected 2 to 64"));
  EXPECT_THAT(open(std::vector<std::string>(65, "x")), HasSubstr("65 hosts"));
  EXPECT_THAT(open({"a", "a"}), HasSubstr("two hosts have the name 'a'"));
  EXPECT_THAT(open({"a", "b/c"}), HasSubstr("host 1 has the name 'b/c'"));
  EXPECT_THAT(open({"a", "b"}, 0, false), HasSubstr("no device is the CPU of host 'b'"));
  EXPECT_THAT(open({"a", "b"}, 2), HasSubstr("the plan is for 2 hosts, and this is number 3"));
  EXPECT_THAT(open({}, 1), HasSubstr("the plan is for 1 host, and this is number 2"));
}

TEST_F(PlanHosts, DevicesOfNoHostAreRefused) {
  for (const char* device : {"c/cpu", "a/cpu"}) {
    TinyPlan tiny = make_tiny_plan();
    const uint32_t cpu = tiny.contents.strings.intern("cpu");
    tiny.contents.target.hosts = {{"a", 0}, {"b", 0}};
    tiny.contents.strings.intern("b/cpu");
    const uint32_t other = tiny.contents.strings.intern(device);
    const auto rename = [&](auto& records) {
      for (auto& record : records) {
        if (record.device == cpu) record.device = other;
      }
    };
    rename(tiny.contents.steps);
    rename(tiny.contents.segments);
    rename(tiny.contents.kv_slots);
    rename(tiny.contents.parts);
    const Status written = write_plan(tiny, dir_.path("q"));
    ASSERT_TRUE(written.ok()) << written.error().message;
    const auto plan = PlanFile::open(dir_.path("q"));
    ASSERT_FALSE(plan.ok());
    EXPECT_THAT(
        plan.error().message,
        HasSubstr(fmt::format("device '{}' belongs to none of the plan's 2 hosts", device)));
  }
}

// Each host has short names for its own GPUs; a plan without these names cannot be read there.
TEST_F(PlanHosts, GpusHaveTheirNamesOnEachHost) {
  for (const bool with_names : {true, false}) {
    TinyPlan tiny = make_tiny_plan();
    tiny.contents.target.hosts = {{"a", 0}, {"b", 0}};
    tiny.contents.strings.intern("b/cpu");
    const uint32_t of_b = tiny.contents.strings.intern("b/cuda:0");
    const uint32_t of_a = with_names ? tiny.contents.strings.intern("cuda:0") : kNone;
    ASSERT_TRUE(write_plan(tiny, dir_.path("g")).ok());
    const PlanFile file = PlanFile::open(dir_.path("g")).take();
    PlanView view = file.view();
    KvSlotRecord slot = {};
    slot.device = of_b;
    view.kv_slots = {&slot, 1};
    const Status sound = verify_hosts(view);
    EXPECT_EQ(sound.ok(), with_names);
    if (!with_names) {
      EXPECT_THAT(sound.error().message, HasSubstr("the plan has no name of cuda:0 on host a"));
      continue;
    }
    EXPECT_EQ(name_as_read_on(view, 0, of_b), of_b);
    EXPECT_EQ(name_as_read_on(view, 1, of_b), of_a);
    EXPECT_EQ(name_as_read_on(view, 1, of_a), of_b);
  }
}

}  // namespace
}  // namespace ktx::plan
