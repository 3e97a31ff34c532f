#include "lib/runtime/hosts/host_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "lib/runtime/hosts/thread_network.h"

namespace ktx::runtime {
namespace {

using ::testing::HasSubstr;
using Pick = HostGroup::Pick;

// Long enough for a busy machine; a host whose neighbour does not leave ends after a silence.
constexpr HostTimes kPatient{.sign_of_life = 0.02, .silence = 4, .longest_wait = 900};
constexpr HostTimes kShortSilence{.sign_of_life = 0.02, .silence = 0.5, .longest_wait = 900};
constexpr HostTimes kShortWait{.sign_of_life = 0.02, .silence = 4, .longest_wait = 2};

MessageBytes message(MessageKind kind, int64_t pass) {
  return MessageWriter({kind, 0, pass}).take();
}

// The hosts of a run; each is ended by a thread of its own, as they wait for each other.
struct TestRun {
  explicit TestRun(int ranks, const HostTimes& times = kPatient) {
    for (auto& end : make_thread_network(ranks)) {
      ends.push_back(end.get());
      groups.push_back(HostGroup::start(std::move(end), times));
      groups.back()->set_names({"a", "b", "c"});
    }
  }
  ~TestRun() {
    std::vector<std::future<void>> all;
    for (auto& group : groups) {
      all.push_back(std::async(std::launch::async, [&group] { group.reset(); }));
    }
  }
  HostGroup& at(int rank) { return *groups[static_cast<size_t>(rank)]; }

  std::vector<Network*> ends;
  std::vector<std::shared_ptr<HostGroup>> groups;
};

TEST(HostGroup, MessagesComeInOrderAndArePicked) {
  TestRun run(3);
  for (int64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(run.at(1).send(0, message(MessageKind::Values, i)).ok());
    ASSERT_TRUE(run.at(2).send(0, message(MessageKind::ForwardOver, i)).ok());
  }
  const auto second = run.at(0).wait(1, {}, [](const MessageHead& head) {
    return head.pass < 2 ? Pick::Drop : head.pass == 2 ? Pick::Take : Pick::Leave;
  });
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(head_of(*second).pass, 2);
  EXPECT_EQ(head_of(run.at(0).wait(1, {}).take()).pass, 3);
  for (int64_t i = 1; i <= 3; ++i) {
    const auto over = run.at(0).wait_for(2, MessageKind::ForwardOver);
    ASSERT_TRUE(over.ok());
    EXPECT_EQ(head_of(*over).pass, i);
  }
  // Messages of passes in flight wait, and no other message waits for them.
  ASSERT_TRUE(run.at(1).send(0, message(MessageKind::ForwardOver, 4)).ok());
  ASSERT_TRUE(run.at(1).send(0, message(MessageKind::Times, 0)).ok());
  EXPECT_TRUE(run.at(0).wait_for(1, MessageKind::Times).ok());
  EXPECT_EQ(head_of(run.at(0).wait(1, {}).take()).pass, 4);
}

TEST(HostGroup, AnIdleWaitEndsWhenTheFirstHostLeaves) {
  TestRun run(2);
  auto wait = std::async(std::launch::async, [&] { return run.at(1).wait(0, {.idle = true}); });
  auto left = std::async(std::launch::async, [&] { run.groups[0].reset(); });
  const auto message = wait.get();
  ASSERT_TRUE(message.ok());
  EXPECT_TRUE(message->empty());
  run.groups[1].reset();
}

TEST(HostGroup, ASilentHostIsNamedOnAllOthers) {
  TestRun run(3, kShortSilence);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  cut_thread_network(*run.ends[1]);
  const auto message = run.at(0).wait(2, {});
  ASSERT_FALSE(message.ok());
  EXPECT_THAT(message.error().message,
              HasSubstr("host b (rank 1) has given no sign of life for 0.5 s"));
  const auto other = run.at(2).wait(0, {.idle = true});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().message, message.error().message);
  EXPECT_FALSE(run.at(2).first_host_lost());
  // Nothing is sent any more.
  EXPECT_FALSE(run.at(0).send(2, {}).ok());
}

TEST(HostGroup, ASilentFirstHostIsNoticedByAll) {
  TestRun run(3, kShortSilence);
  cut_thread_network(*run.ends[0]);
  for (const int rank : {1, 2}) {
    const auto message = run.at(rank).wait(0, {.idle = true});
    ASSERT_FALSE(message.ok());
    EXPECT_THAT(message.error().message, HasSubstr("host a (rank 0) has given no sign of life"));
    EXPECT_TRUE(run.at(rank).first_host_lost());
  }
}

TEST(HostGroup, AnswersThatDoNotComeOrAreOthersEndTheRun) {
  TestRun late(2, kShortWait);
  EXPECT_THAT(late.at(0).wait(1, {}).error().message,
              HasSubstr("host b (rank 1) has not answered host a (rank 0) for 2"));
  TestRun other(2);
  ASSERT_TRUE(other.at(1).send(0, message(MessageKind::Times, 0)).ok());
  EXPECT_THAT(other.at(0).wait_for(1, MessageKind::Ready).error().message,
              HasSubstr("host b (rank 1) sent message"));
}

TEST(HostGroup, APassIsStoppedOnAllHosts) {
  TestRun run(2);
  run.at(1).begin_forward(4);
  run.at(0).stop_forward(4);
  while (!run.at(1).stopped().load()) std::this_thread::yield();
  EXPECT_TRUE(run.at(1).stopped().load());
  run.at(1).begin_forward(5);
  EXPECT_FALSE(run.at(1).stopped().load());
  // One that comes before its pass counts when that begins, and not for the one at hand.
  run.at(0).stop_forward(7);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(run.at(1).stopped().load());
  run.at(1).begin_forward(6);
  EXPECT_FALSE(run.at(1).stopped().load());
  run.at(1).begin_forward(7);
  EXPECT_TRUE(run.at(1).stopped().load());
}

TEST(HostMessage, EveryTruncationIsNoticed) {
  const std::vector<int32_t> list = {1, 2, 3};
  MessageWriter out({MessageKind::Start, 1, 2});
  const MessageBytes whole =
      out.put(int64_t{5}).put_list(std::span<const int32_t>(list)).put_text("text").take();
  const auto read = [](std::span<const std::byte> bytes) {
    MessageReader in(bytes);
    in.get<int64_t>();
    const auto numbers = in.get_list<int32_t>(3);
    const std::string text = in.get_text();
    return in.at_end() && numbers.size() == 3 && text == "text";
  };
  EXPECT_TRUE(read(whole));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(read(std::span(whole).first(size)));
  MessageReader in(whole);
  in.get<int64_t>();
  EXPECT_TRUE(in.get_list<int32_t>(2).empty());
  EXPECT_FALSE(in.ok());
}

}  // namespace
}  // namespace ktx::runtime
