// ktx-run chat at a terminal: typed and edited text reaches the model unchanged.
#include <gtest/gtest.h>

#include "tests/terminal/terminal_fixture.h"

namespace ktx::testing {
namespace {

TEST_F(Terminal, WhatIsTypedArrivesWhateverTheLocale) {
  const Lines kTyped = {
      "你好",      "café", "cafe\u0301 ok",          "Grüße 😀!", "👨\u200d👩\u200d👧 hi",
      "🇩🇪 привет", "नमस्ते", "\u1112\u1161\u11ab 한국"};
  Lines sent;
  for (const std::string& line : kTyped) sent.push_back(line + "\r");
  for (const Lines& locale :
       {Lines{}, Lines{"LANG=C"}, Lines{"LANG=C.UTF-8"}, Lines{"LC_ALL=POSIX"},
        Lines{"LANG=de_DE.ISO-8859-1"}, Lines{"LC_ALL=xx_YY.UTF-8"}}) {
    EXPECT_EQ(received(sent, locale), kTyped) << (locale.empty() ? "no LANG" : locale[0]);
  }
}

TEST_F(Terminal, KeysEditCharactersAsPeopleSeeThem) {
  struct Case {
    std::string keys, line;
  };
  const std::string left = kLeft;
  const std::vector<Case> kCases = {
      {"你好吗\x7f", "你好"},
      {"cafe\u0301\x7f", "caf"},
      {"a👨\u200d👩\u200d👧\x7f"
       "b",
       "ab"},
      {"👍🏽x" + left +
           "\x08"
           "y",
       "yx"},
      {"🇩🇪🇫🇷\x7f", "🇩🇪"},
      {"你吗" + left + "好", "你好吗"},
      {"ab" + left + left + "é", "éab"},
      {"好\x01你\x05!", "你好!"},
      {"eins zwei drei\x17vier", "eins zwei vier"},
      {"你好 世界\x17\x17再见", "再见"},
      {"weg\x15"
       "da",
       "da"},
      {"ab cd\x01\x0b"
       "neu",
       "neu"},
      {"ab cd\x17\x19", "ab cd"},
      {"ab\x14", "ba"},
      {"héllo" + std::string("\x1b[1;5D") + "\x1b[3~H", "Héllo"},
      {"x\x1b[Hy\x1b[Fz", "yxz"},
      {"x\x1bOHy\x1bOFz", "yxz"},
      {"e" + std::string("\u0301") + left + "x", "xe\u0301"},
      {"a\x1b[15~b\x1b[99;99Xc\x1b[200", "abc"},  // keys without a meaning
      {"drop\x03kept", "kept"},
      {"one\x1b\rtwo", "one\ntwo"},
  };
  Lines keys, lines;
  for (const Case& test : kCases) {
    keys.push_back(test.keys + "\r");
    lines.push_back(test.line);
  }
  for (size_t i = 0; i < kCases.size(); ++i) {
    const Lines got = received({keys[i]});
    ASSERT_EQ(got.size(), 1u) << i;
    EXPECT_EQ(got[0], lines[i]) << i;
  }
}

TEST_F(Terminal, TheCursorIsAtTheColumnOfItsCharacter) {
  PtyProgram program(chat(), environment(), 20);
  ASSERT_TRUE(program.shows("\x1b[J> ")) << program.output();
  program.send("你e\u0301😀x");
  ASSERT_TRUE(program.shows("> 你e\u0301😀x")) << program.output();
  for (const char* column : {"7", "5", "4", "2"}) {  // behind "> ", and one, two columns each
    program.send(kLeft);
    EXPECT_TRUE(program.shows("\r\x1b[" + std::string(column) + "C")) << program.output();
  }
  // What does not fit goes to a second row, and the first is drawn over from there.
  program.send("\x05" + std::string(14, 'w'));
  EXPECT_TRUE(program.shows("wwwwwwwwwww\r\r\nwww")) << program.output();
  program.send("\x01");
  EXPECT_TRUE(program.shows("\r\x1b[1A\x1b[J> 你")) << program.output();
  EXPECT_TRUE(program.shows("\r\r\nwww\x1b[1A\r\x1b[2C")) << program.output();
  program.send("\x15\x0b\x04");
  EXPECT_EQ(program.status(), 0) << program.output();
}

TEST_F(Terminal, BrokenUtf8LosesNeitherTheLineNorTheProgram) {
  EXPECT_EQ(received({"caf\xe9 ok\r", "a\xff\xfe\x80z\r", "\xe4\xbd\r", "x\xf0\x9f\x98y\r"}),
            (Lines{"caf\uFFFD ok", "a\uFFFD\uFFFD\uFFFDz", "\uFFFD", "x\uFFFDy"}));
}

TEST_F(Terminal, ALineWiderThanTheTerminalIsEdited) {
  std::string wide;
  for (int i = 0; i < 60; ++i) wide += "你好e\u0301";
  EXPECT_EQ(received({wide + "\x01"
                             "A\x05"
                             "Z\r"},
                     {}, 21),
            Lines{"A" + wide + "Z"});
}

TEST_F(Terminal, HistoryKeepsEveryLanguageOverSessions) {
  const Lines kTyped = {"你好 世界", "cafe\u0301\\n", "👨\u200d👩\u200d👧"};
  Lines sent;
  for (const std::string& line : kTyped) sent.push_back(line + "\r");
  EXPECT_EQ(received(sent), kTyped);
  const std::string up = kUp, down = kDown;
  // The last line of the session before is /save.
  EXPECT_EQ(received({up + up + "\r", "draft" + up + up + up + up + up + down + "\r",
                      up + up + down + down + "new\r"}),
            (Lines{kTyped[2], kTyped[1], "new"}));
  // Ctrl-R: a part of a line, an older one, none, and back to what had been written.
  const std::string search = "\x12";
  EXPECT_EQ(received({search + "世\r", search + "e" + search + "\x1b[HX \r", search + "nowhere\r",
                      "kept" + search + "cafe\x07\r"}),
            (Lines{kTyped[0], "X new", "kept"}));
  // A file that libedit wrote.
  home_.write(".ktx_history", "_HiStOrY_V2_\nold\\040line\\040\\134x\n");
  EXPECT_EQ(received({up + "\r"}), Lines{"old line \\x"});
}

}  // namespace
}  // namespace ktx::testing
