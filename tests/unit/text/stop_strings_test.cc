#include "lib/text/answers/stop_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lib/text/answers/partial_match.h"
#include "tests/unit/text/stream_pieces.h"

namespace ktx::text {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  std::string text;
  std::string stopped_by;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings stop = StopStrings::create(stops).take();
  Outcome out;
  for (const std::string& piece : pieces) out.text += stop.add(piece);
  out.text += stop.finish();
  if (stop.stopped()) out.stopped_by = stop.stopped_by();
  return out;
}

// The rule, written plainly: the stop string that ends first, then the longest.
Outcome expected(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop) && stop.size() > best.size()) best = stop;
    }
    if (!best.empty()) return {text.substr(0, end - best.size()), best};
  }
  return {text, ""};
}

TEST(StopStrings, EndsTheTextBeforeTheFirstOne) {
  EXPECT_EQ(run({"END", "\nUser:"}, {"Hi\nUser: END"}), (Outcome{"Hi", "\nUser:"}));
  EXPECT_EQ(run({"ab"}, {"aab"}), (Outcome{"a", "ab"}));
  EXPECT_EQ(run({"bc", "abcd"}, {"xabcd"}), (Outcome{"xa", "bc"}));
  EXPECT_EQ(run({"c", "bc"}, {"abc"}), (Outcome{"a", "bc"}));
  EXPECT_EQ(run({}, {"abc"}), (Outcome{"abc", ""}));
}

TEST(StopStrings, NeverShowsABeginningOfOne) {
  StopStrings stop = StopStrings::create({"\nUser:"}).take();
  EXPECT_EQ(stop.add("Hello\nUs"), "Hello");
  EXPECT_EQ(stop.add("ers\n"), "\nUsers");
  EXPECT_EQ(stop.finish(), "\n");
  EXPECT_FALSE(stop.stopped());
}

TEST(StopStrings, NothingComesBehindOne) {
  StopStrings stop = StopStrings::create({"X"}).take();
  EXPECT_EQ(stop.add("aXb"), "a");
  EXPECT_EQ(stop.add("c"), "");
  EXPECT_EQ(stop.finish(), "");
  EXPECT_EQ(stop.stopped_by(), "X");
}

TEST(StopStrings, AnyCutOfTheTextGivesTheSame) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const auto word = [&](int most) {
      std::string out;
      for (int n = 1 + static_cast<int>(random() % most); n > 0; --n) out += "ab<"[random() % 3];
      return out;
    };
    std::vector<std::string> stops;
    for (int n = static_cast<int>(random() % 4); n > 0; --n) stops.push_back(word(6));
    const std::string text = word(40);
    const Outcome want = expected(stops, text);
    for (const auto& pieces : ktx::testing::cuts(text, 5)) {
      ASSERT_EQ(run(stops, pieces), want) << "round " << round << " text " << text;
    }
  }
}

// Every string of up to nine letters over two, behind each of its own beginnings: whatever it
// shares with itself is met, and the search must go back as far as that and no further.
TEST(StopStrings, FindsStringsThatOverlapThemselves) {
  for (int length = 1; length <= 9; ++length) {
    for (int bits = 0; bits < 1 << length; ++bits) {
      std::string stop;
      for (int i = 0; i < length; ++i) stop += "ab"[bits >> i & 1];
      for (int begin = 0; begin <= length; ++begin) {
        const std::string text = stop.substr(0, begin) + stop + "a";
        ASSERT_EQ(run({stop}, {text}), expected({stop}, text)) << stop << " in " << text;
        ASSERT_EQ(run({stop}, {text.substr(0, 3), text.substr(std::min<size_t>(3, text.size()))}),
                  expected({stop}, text))
            << stop << " in " << text;
      }
    }
  }
}

// What was matched is given up step by step: one step back from "aabaac" would leave an "a"
// that is not there.
TEST(StopStrings, GoesBackAsFarAsItMust) {
  const std::string text = "aabaacabaacb";
  EXPECT_EQ(run({"aabaacb"}, {text}), (Outcome{text, ""}));
  EXPECT_EQ(run({"aabaacb"}, {"aabaac" + std::string("aabaacb")}), (Outcome{"aabaac", "aabaacb"}));
}

// With several the longest beginning is held back, whichever string it is of.
TEST(StopStrings, HoldsBackForTheLongestBeginning) {
  StopStrings stop = StopStrings::create({"bX", "aabX", "cX"}).take();
  EXPECT_EQ(stop.add("zaab"), "z");
  EXPECT_EQ(stop.add("c"), "aab");
  EXPECT_EQ(stop.finish(), "c");
}

TEST(StopStrings, TakesAsManyAndAsLongAsItSays) {
  EXPECT_TRUE(StopStrings::create(std::vector<std::string>(kMaxStopStrings, "x")).ok());
  EXPECT_TRUE(StopStrings::create({std::string(kMaxStopStringBytes, 'x')}).ok());
  EXPECT_FALSE(StopStrings::create({std::string(kMaxStopStringBytes + 1, 'x')}).ok());
}

TEST(PartialMatch, IsTheLongestEndThatBeginsTheMarker) {
  EXPECT_EQ(partial_match("see <thi", "<think>"), 4u);
  EXPECT_EQ(partial_match("see <x", "<think>"), 0u);
  EXPECT_EQ(partial_match("<think>", "<think>"), 0u) << "all of it is no part";
  EXPECT_EQ(partial_match("", "<think>"), 0u);
  EXPECT_EQ(partial_match("abc", ""), 0u);
  EXPECT_EQ(partial_match("<<", "<<<"), 2u);
  for (int text_bits = 0; text_bits < 1 << 7; ++text_bits) {
    std::string text, marker;
    for (int i = 0; i < 4; ++i) text += "ab"[text_bits >> i & 1];
    for (int i = 4; i < 7; ++i) marker += "ab"[text_bits >> i & 1];
    size_t longest = 0;
    for (size_t n = 1; n < marker.size(); ++n) {
      if (text.ends_with(marker.substr(0, n))) longest = n;
    }
    EXPECT_EQ(partial_match(text, marker), longest) << marker << " in " << text;
  }
}

TEST(StopStrings, RefusesWhatIsNoStopString) {
  EXPECT_THAT(StopStrings::create({"a", ""}).error().message, HasSubstr("is empty"));
  EXPECT_THAT(StopStrings::create({std::string(5000, 'x')}).error().message,
              HasSubstr("5000 bytes; at most 4096"));
  EXPECT_THAT(StopStrings::create(std::vector<std::string>(65, "x")).error().message,
              HasSubstr("65 stop strings given; at most 64"));
}

}  // namespace
}  // namespace ktx::text
