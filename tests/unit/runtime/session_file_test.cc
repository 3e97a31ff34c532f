#include "lib/runtime/session/session_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lib/runtime/session/session.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/runtime/two_layer_plan.h"

namespace ktx::runtime {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<int32_t> random_ids(int count) {
  Random random(11);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random.next() % kTinyVocab));
  return ids;
}

class SessionFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> engine(const EngineOptions& options = {}) {
    auto opened = Engine::open(plan_.path(), options);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return opened.take();
  }
  static Session session(Engine& engine, uint64_t seed = 5) {
    SamplingOptions options;
    options.seed = seed;
    options.temperature = 1;
    return Session(engine, Sampler::create(options, kTinyVocab).take());
  }
  static std::vector<int32_t> next(Session& session, int count) {
    std::vector<int32_t> ids;
    for (int i = 0; i < count; ++i) ids.push_back(session.next().take().id);
    return ids;
  }
  std::string file() const { return dir_.path("s.ktxsession"); }

  TinyPlan plan_;
  testing::TempDir dir_;
};

TEST_F(SessionFileTest, AnAnswerGoesOnAsIfNeverInterrupted) {
  for (plan::KvType type : {plan::KvType::F32, plan::KvType::F16, plan::KvType::Q8_0}) {
    EngineOptions options;
    options.kv_type = type;
    options.max_batch = 2;
    const auto first = engine(options);
    Session whole = session(*first), cut = session(*first);
    for (Session* s : {&whole, &cut}) {
      ASSERT_EQ(s->set_prompt(random_ids(90)).take(), Outcome::Ok);
    }
    const std::vector<int32_t> all = next(whole, 40);
    next(cut, 17);
    ASSERT_TRUE(cut.save(file(), "a note").ok());

    options.threads = 3;
    options.ctx = 200;
    const auto second = engine(options);
    Session resumed = session(*second, 999);
    EXPECT_EQ(resumed.load(file()).take(), "a note");
    EXPECT_EQ(resumed.tokens().size(), 107u);
    EXPECT_THAT(next(resumed, 23), ElementsAreArray(all.begin() + 17, all.end()));
    EXPECT_EQ(resumed.stats().decode_tokens, 23) << "more than the last token was computed again";
  }
}

TEST_F(SessionFileTest, APromptGoesOnInTheMiddle) {
  EngineOptions options;
  options.chunk_tokens = 32;
  options.max_batch = 2;
  const auto first = engine(options);
  const std::vector<int32_t> prompt = random_ids(150);
  Session whole = session(*first), cut = session(*first);
  ASSERT_EQ(whole.set_prompt(prompt).take(), Outcome::Ok);
  ASSERT_EQ(cut.set_prompt(prompt, [](int64_t done, int64_t) { return done < 96; }).take(),
            Outcome::Stopped);
  ASSERT_TRUE(cut.save(file()).ok());
  const auto second = engine(options);
  Session resumed = session(*second, 1);
  ASSERT_TRUE(resumed.load(file()).ok());
  ASSERT_EQ(resumed.set_prompt(prompt).take(), Outcome::Ok);
  EXPECT_EQ(resumed.stats().reused_tokens, 96);
  EXPECT_EQ(next(resumed, 20), next(whole, 20));
}

TEST_F(SessionFileTest, EmptySessionsAndLongNotesReturn) {
  const auto e = engine();
  Session s = session(*e);
  ASSERT_TRUE(s.save(file(), std::string(3 << 20, 'n')).ok());
  Session back = session(*e);
  EXPECT_EQ(back.load(file()).take().size(), 3u << 20);
  EXPECT_TRUE(back.tokens().empty());
}

// In two parts: nothing of a file is touched where the engine is.
TEST_F(SessionFileTest, AnImageIsTheFileInMemory) {
  const auto one = engine();
  Sequence sequence = one->new_sequence();
  SavedSession text;
  text.tokens = random_ids(70);
  text.note = "a note";
  const BatchItem item{&sequence, text.tokens, Want::Last};
  ASSERT_EQ(one->forward({&item, 1}).take(), Forward::Done);
  ASSERT_TRUE(save_session(file(), *one, text, sequence).ok());
  const SessionImage image = session_image(*one, text, sequence).take();
  ASSERT_TRUE(write_image(dir_.path("other"), image).ok());
  EXPECT_EQ(testing::read_file(dir_.path("other")), testing::read_file(file()));

  const SessionImage read = read_image(file(), 1 << 20).take();
  EXPECT_EQ(read.size(), image.size() + 16) << "the hash stands behind it";
  Sequence again = one->new_sequence();
  EXPECT_EQ(load_image(file(), read, *one, again).take().note, "a note");
  EXPECT_EQ(again.length(), 70);
  SessionImage damaged = read;
  damaged[read.size() / 2] ^= std::byte{1};
  EXPECT_FALSE(load_image(file(), damaged, *one, again).ok());
  EXPECT_EQ(again.length(), 0);
  EXPECT_THAT(load_image(file(), {}, *one, again).error().message, HasSubstr("ends too early"));
  EXPECT_THAT(read_image(file(), 100).error().message, HasSubstr("at most 100"));
  EXPECT_THAT(read_image(dir_.path(), 100).error().message, HasSubstr("not a file"));
  ASSERT_EQ(::mkfifo(dir_.path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(read_image(dir_.path("pipe"), 100).error().message, HasSubstr("not a file"));
}

TEST_F(SessionFileTest, RefusesEveryCutAndEveryFlippedByte) {
  EngineOptions options;
  const auto e = engine(options);
  Session s = session(*e);
  ASSERT_EQ(s.set_prompt(random_ids(3)).take(), Outcome::Ok);
  ASSERT_TRUE(s.save(file(), "note").ok());
  const std::string good = testing::read_file(file());
  ASSERT_GT(good.size(), 128u);
  Session victim = session(*e);
  for (size_t size = 0; size < good.size(); size += 1 + size / 16) {
    dir_.write("s.ktxsession", good.substr(0, size));
    EXPECT_FALSE(victim.load(file()).ok()) << "cut at " << size;
    EXPECT_TRUE(victim.tokens().empty());
  }
  for (size_t at = 0; at < good.size(); at += at < 200 ? 1 : 37) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x81);
    dir_.write("s.ktxsession", bad);
    EXPECT_FALSE(victim.load(file()).ok()) << "flipped " << at;
  }
  dir_.write("s.ktxsession", good + "x");
  EXPECT_THAT(victim.load(file()).error().message, HasSubstr("bytes behind its end"));
  dir_.write("s.ktxsession", good);
  EXPECT_TRUE(victim.load(file()).ok()) << "the bad ones did no harm";
  EXPECT_EQ(e->cache().state().free + 2, e->cache().state().total) << "blocks were lost";
}

TEST_F(SessionFileTest, SaysWhatDoesNotFit) {
  const auto e = engine();
  Session s = session(*e);
  ASSERT_EQ(s.set_prompt(random_ids(70)).take(), Outcome::Ok);
  ASSERT_TRUE(s.save(file()).ok());
  const auto refused = [&](const Engine& other) {
    Session back = session(const_cast<Engine&>(other));
    const auto loaded = back.load(file());
    return loaded ? "" : loaded.error().message;
  };
  EngineOptions options;
  options.kv_type = plan::KvType::Q8_0;
  EXPECT_THAT(refused(*engine(options)), HasSubstr("--kv-type"));
  options = {};
  options.ctx = 64;
  EXPECT_THAT(refused(*engine(options)), HasSubstr("--ctx 70"));
  const TinyPlan other(DType::F32);
  const auto another = Engine::open(other.path(), {}).take();
  EXPECT_THAT(refused(*another), HasSubstr("another plan"));
  dir_.write("s.ktxsession", std::string(500, 'x'));
  EXPECT_THAT(refused(*e), HasSubstr("not a session"));
  Session nothing = session(*e);
  EXPECT_THAT(nothing.load("/nowhere/at/all").error().message, HasSubstr("No such file"));
  EXPECT_FALSE(nothing.save("/nowhere/at/all").ok());
}

}  // namespace
}  // namespace ktx::runtime
