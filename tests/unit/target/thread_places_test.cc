#include "lib/target/thread_places.h"

#include "tests/unit/target/fake_machine.h"

namespace ktx::target {
namespace {

class ThreadPlacesTest : public FakeMachine {
 protected:
  // "0:cpu cpu|1:cpu": by share, the node's number and its threads.
  std::string text(int threads) const {
    const ThreadPlaces places = place_threads(threads, root());
    std::string out;
    for (size_t share = 0; share < places.nodes.size(); ++share) {
      out += (share ? "|" : "") + std::to_string(places.nodes[share]) + ":";
      for (const ThreadPlace& place : places.threads) {
        if (place.share == static_cast<int>(share)) out += std::to_string(place.cpu) + " ";
      }
    }
    return out;
  }
};

TEST_F(ThreadPlacesTest, CoresOfAllNodesInTurnThenTheirSiblings) {
  put_cpus(2, 4, 2);  // 0-3 and 4-7 are cores, 8-15 their siblings
  put("/sys/devices/system/node/online", "0-1\n");
  put_node(0, "0-3,8-11");
  put_node(1, "4-7,12-15");
  EXPECT_EQ(text(8), "0:0 1 2 3 |1:4 5 6 7 ");
  EXPECT_EQ(text(3), "0:0 1 |1:4 ");
  EXPECT_EQ(text(1), "0:0 ");
  EXPECT_EQ(text(10), "0:0 1 2 3 8 |1:4 5 6 7 12 ");
  EXPECT_EQ(text(17), "");  // more threads than processors: none has a place
}

TEST_F(ThreadPlacesTest, NodesMayDifferInSizeAndHaveAnyNumber) {
  put_cpus(1, 6, 1);
  put("/sys/devices/system/node/online", "0,2,5\n");
  put_node(0, "0-3");
  put_node(2, "4-5");
  put_node(5, "");  // memory without processors
  EXPECT_EQ(text(6), "0:0 1 2 3 |2:4 5 ");
  EXPECT_EQ(text(5), "0:0 1 2 |2:4 5 ");
}

TEST_F(ThreadPlacesTest, WithoutNodesThereIsOne) {
  put_cpus(1, 4, 2);
  EXPECT_EQ(text(4), "0:0 1 2 3 ");
  EXPECT_EQ(text(5), "0:0 1 2 3 4 ");
}

TEST(ThreadPlaces, FitsThisMachine) {
  const ThreadPlaces places = place_threads(1);
  ASSERT_EQ(places.threads.size(), 1u);
  EXPECT_GE(places.threads[0].cpu, 0);
}

}  // namespace
}  // namespace ktx::target
