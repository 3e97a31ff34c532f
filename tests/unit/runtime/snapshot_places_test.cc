#include "lib/runtime/cache/snapshot_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kEnd = 7;
bool ends(int32_t id) {
  return id == kEnd;
}
std::vector<int32_t> text(int64_t tokens) {
  return std::vector<int32_t>(static_cast<size_t>(tokens), 1);
}

TEST(SnapshotPlaces, EverySoManyTokensAndBeforeTheLast) {
  EXPECT_THAT(snapshot_places(text(1200), 0, {}), ElementsAre(512, 1024, 1199));
  EXPECT_THAT(snapshot_places(text(1024), 0, {}), ElementsAre(512, 1023));
  EXPECT_THAT(snapshot_places(text(513), 0, {}), ElementsAre(512));
  EXPECT_THAT(snapshot_places(text(1), 0, {}), IsEmpty());
  EXPECT_THAT(snapshot_places({}, 0, {}), IsEmpty());
}

TEST(SnapshotPlaces, BehindTheLastMessageRather) {
  std::vector<int32_t> prompt = text(300);
  prompt[100] = prompt[294] = kEnd;
  EXPECT_THAT(snapshot_places(prompt, 0, ends), ElementsAre(295));
  prompt[294] = 1;
  EXPECT_THAT(snapshot_places(prompt, 0, ends), ElementsAre(299)) << "that message is far away";
  prompt[299] = kEnd;
  EXPECT_THAT(snapshot_places(prompt, 0, ends), ElementsAre(299)) << "the last token is computed";
}

TEST(SnapshotPlaces, WhereTextsPart) {
  EXPECT_THAT(snapshot_places(text(600), 130, {}), ElementsAre(130, 512, 599));
  EXPECT_THAT(snapshot_places(text(600), 512, {}), ElementsAre(512, 599));
  EXPECT_THAT(snapshot_places(text(600), 600, {}), ElementsAre(512, 599));
}

}  // namespace
}  // namespace ktx::runtime
