// A chat at a terminal: types lines and reads what the model received.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/pty_program.h"
#include "tests/support/run_program.h"

namespace ktx::testing {

inline constexpr const char* kLeft = "\x1b[D";
inline constexpr const char* kUp = "\x1b[A";
inline constexpr const char* kDown = "\x1b[B";

class Terminal : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const Finished run = run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", plan()});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  static void TearDownTestSuite() { delete dir_; }
  static std::string plan() { return dir_->path("model.ktxplan"); }

  static std::vector<std::string> chat(const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {ktx_run(), "chat", plan(), "--temp", "0",
                                     "-n",      "2",    "-t",   "2"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  std::vector<std::string> environment(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"HOME=" + home_.path(""), "TERM=xterm-256color"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // What the model got, message by message, of a chat in which `lines` were sent.
  std::vector<std::string> received(const std::vector<std::string>& lines,
                                    const std::vector<std::string>& more_environment = {},
                                    int columns = 80) const {
    const std::string saved = home_.path("talk.ktxsession");
    PtyProgram program(chat(), environment(more_environment), columns);
    for (const std::string& line : lines) {
      EXPECT_TRUE(program.shows("\x1b[J> ")) << program.output();
      program.send(line);
      // Not before the answer is there: what follows would be typed ahead.
      EXPECT_TRUE(program.shows("\x1b[?2004l")) << program.output();
    }
    EXPECT_TRUE(program.shows("\x1b[J> ")) << program.output();
    program.send("/save " + saved + "\r");
    EXPECT_TRUE(program.shows("messages, ")) << program.output();
    EXPECT_TRUE(program.shows("\x1b[J> ")) << program.output();
    program.send("\x04");
    EXPECT_EQ(program.status(), 0) << program.output();
    EXPECT_TRUE(program.is_cooked());
    return user_messages(saved);
  }

  static std::vector<std::string> user_messages(const std::string& session_file) {
    const std::string bytes = read_file(session_file);
    std::istringstream text(bytes.substr(bytes.find("{\n  \"ktx_conversation\"")));
    nlohmann::json conversation;
    text >> conversation;
    std::vector<std::string> messages;
    for (const nlohmann::json& message : conversation["messages"]) {
      if (message["role"] == "user") messages.push_back(message["content"]);
    }
    return messages;
  }

  static TempDir* dir_;
  TempDir home_;
};
inline TempDir* Terminal::dir_ = nullptr;

using Lines = std::vector<std::string>;

}  // namespace ktx::testing
