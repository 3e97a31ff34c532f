// A server that is operated: signals, files that others renew, and a plan that changes under it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/http_client.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class ServeOperation : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    models_ = new TempDir;
    for (const char* model : {"llama", "qwen2"}) {
      ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf(model), "-o", made(model)}).status, 0);
    }
  }
  static void TearDownTestSuite() { delete models_; }
  static std::string made(const std::string& model) { return models_->path(model + ".ktxplan"); }
  void SetUp() override { std::filesystem::copy_file(made("llama"), plan()); }
  std::string plan() const { return dir_.path("m.ktxplan"); }

  static HttpAnswer ask(const ServerProcess& server, int tokens = 8,
                        const std::string& model = "m") {
    return server.post("/v1/completions", json{{"model", model},
                                               {"prompt", "Once upon a time"},
                                               {"max_tokens", tokens},
                                               {"ignore_eos", true},
                                               {"temperature", 0}}
                                              .dump());
  }
  static std::string text(const HttpAnswer& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.status == 200 ? answer.json()["choices"][0]["text"].get<std::string>() : "";
  }
  // Written in its place, as scp and cp do.
  void write_plan(const std::string& bytes) const {
    std::ofstream(plan(), std::ios::trunc | std::ios::binary) << bytes;
  }
  static void await_log(const ServerProcess& server, const std::string& what) {
    await([&] { return server.log().find(what) != std::string::npos; });
    EXPECT_THAT(server.log(), HasSubstr(what));
  }
  static void await_lines(const std::string& path, size_t lines) {
    await([&] { return count(read_file(path), "\n") >= lines; });
  }
  static int await_health(const ServerProcess& server, int status) {
    int now = 0;
    await([&] { return (now = server.get("/health").status) == status; });
    return now;
  }
  static size_t count(const std::string& text, const std::string& what) {
    size_t found = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
    return found;
  }

  TempDir dir_;
  static TempDir* models_;
};
TempDir* ServeOperation::models_ = nullptr;

TEST_F(ServeOperation, AHangUpWithoutFilesEndsNothing) {
  ServerProcess server({plan(), "-t", "1"});
  Connection client(server.port());
  client.send(http_request("POST", "/v1/completions",
                           R"({"prompt": "a", "max_tokens": 200, "ignore_eos": true})"));
  for (int i = 0; i < 3; ++i) kill(server.pid(), SIGHUP);
  EXPECT_EQ(client.answer().status, 200) << "the answer that was running";
  await_log(server, "no file to read again");
  EXPECT_EQ(ask(server).status, 200);
  // Nor while it drains.
  kill(server.pid(), SIGTERM);
  await_log(server, "ending: waiting");
  kill(server.pid(), SIGHUP);
  EXPECT_EQ(server.stop(0), 0);
}

TEST_F(ServeOperation, AHangUpOpensTheAccessLogAgain) {
  const std::string log = dir_.path("access"), moved = dir_.path("access.1");
  const ServerProcess server({plan(), "-t", "1", "--access-log", log});
  EXPECT_EQ(server.get("/props").status, 200);
  std::filesystem::rename(log, moved);
  EXPECT_EQ(server.get("/props").status, 200);
  await_lines(moved, 2);  // written behind the answer
  kill(server.pid(), SIGHUP);
  await_log(server, "access: opened again");
  EXPECT_EQ(server.get("/v1/models").status, 200);
  EXPECT_EQ(count(read_file(moved), "/props"), 2u);
  await_lines(log, 1);
  EXPECT_EQ(count(read_file(log), "\n"), 1u) << read_file(log);
  EXPECT_THAT(read_file(log), HasSubstr("/v1/models"));
  // A place where nothing can be written: the log goes on where it is.
  std::filesystem::rename(log, moved);
  std::filesystem::create_directory(log);
  kill(server.pid(), SIGHUP);
  await_log(server, "access: it is a folder; name a file in it; the log stays as it was");
  EXPECT_EQ(server.get("/props").status, 200);
}

TEST_F(ServeOperation, AHangUpReadsTheCertificateAgain) {
  const std::string key = dir_.path("key.pem"), certificate = dir_.path("cert.pem");
  const auto make = [&](const std::string& name) {
    return run_program({"/usr/bin/env", "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key,
                        "-out", certificate});
  };
  if (const Finished made = make("first"); made.status != 0) {
    GTEST_SKIP() << "no openssl here: " << made.err;
  }
  const ServerProcess server({plan(), "-t", "1", "--tls-cert", certificate, "--tls-key", key});
  const auto get = [&](const std::string& trusted) {
    return run_program({"/usr/bin/env", "curl", "-sS", "--noproxy", "*", "--max-time", "60",
                        "--cacert", trusted,
                        "https://127.0.0.1:" + std::to_string(server.port()) + "/health"});
  };
  const std::string first = dir_.path("first.pem");
  std::filesystem::copy_file(certificate, first);
  if (get(first).status == 127) GTEST_SKIP() << "no curl here";
  EXPECT_EQ(get(first).status, 0);
  ASSERT_EQ(make("second").status, 0);
  EXPECT_EQ(get(first).status, 0) << "not before it is told";
  kill(server.pid(), SIGHUP);
  await_log(server, "cert.pem: read again");
  EXPECT_EQ(get(certificate).status, 0);
  EXPECT_NE(get(first).status, 0);
  // Half of a renewal changes nothing.
  const std::string second = dir_.path("second.pem");
  std::filesystem::copy_file(certificate, second);
  std::ofstream(key) << "no key\n";
  kill(server.pid(), SIGHUP);
  await_log(server, "the certificate stays as it was");
  EXPECT_EQ(get(second).status, 0);
}

TEST_F(ServeOperation, WithoutAQueueItStartsAndAnswersWhatFillsTheBatch) {
  const ServerProcess server({plan(), "-t", "1", "--max-queue", "0", "--max-batch", "2"});
  EXPECT_EQ(ask(server).status, 200);
  const HttpAnswer two =
      server.post("/v1/completions", R"({"prompt": "a", "max_tokens": 3, "n": 2})");
  EXPECT_EQ(two.status, 200) << two.body;
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt": "a", "max_tokens": 3, "n": 3})").status,
            400);
  // A folder's models are loaded by requests, which wait for them.
  std::filesystem::create_directory(dir_.path("models"));
  std::filesystem::copy_file(made("qwen2"), dir_.path("models/qwen2.ktxplan"));
  const ServerProcess folder({dir_.path("models"), "-t", "1", "--max-queue", "0"});
  EXPECT_EQ(ask(folder, 3, "qwen2").status, 200);
}

TEST_F(ServeOperation, ASignalOfTheMemoryIsExplained) {
  ServerProcess server({plan(), "-t", "1"});
  EXPECT_EQ(server.stop(SIGBUS), 128 + SIGBUS);
  EXPECT_THAT(server.log(), HasSubstr("ktx-run: error: a page of memory cannot be read (SIGBUS)"));
}

// Cut off, /health says so; whole again, it answers without a restart.
TEST_F(ServeOperation, APlanThatWasCutOffIsLoadedAgainWhenItIsWhole) {
  const ServerProcess server({plan(), "-t", "1"});
  const std::string whole = read_file(plan()), before = text(ask(server));
  std::filesystem::resize_file(plan(), 4096);
  const HttpAnswer cut = ask(server);
  EXPECT_GE(cut.status, 500) << cut.body;
  EXPECT_THAT(cut.body, Not(HasSubstr(dir_.path()))) << "clients know no paths";
  EXPECT_EQ(await_health(server, 503), 503);
  EXPECT_THAT(server.get("/health").body, HasSubstr("was cut off or written to"));
  EXPECT_THAT(server.log(), HasSubstr(plan() + ": the file"));
  EXPECT_THAT(server.log(), Not(HasSubstr(plan() + ": " + plan())));
  write_plan(whole);
  EXPECT_EQ(text(ask(server)), before);
  EXPECT_EQ(await_health(server, 200), 200);
  EXPECT_THAT(server.log(), HasSubstr("loaded again"));
}

// The server needs no request for that.
TEST_F(ServeOperation, AnIdleServerNoticesByItself) {
  const ServerProcess server({plan(), "-t", "1"});
  const std::string whole = read_file(plan()), before = text(ask(server));
  write_plan(whole.substr(0, whole.size() / 2));
  EXPECT_EQ(await_health(server, 503), 503);
  write_plan(whole);
  EXPECT_EQ(await_health(server, 200), 200);
  EXPECT_EQ(text(ask(server)), before);
}

// Another model written over it, of the same size or not: no answer mixes the two.
TEST_F(ServeOperation, APlanThatIsWrittenOverIsTheNewOne) {
  const ServerProcess server({plan(), "-t", "1", "--ctx", "8192"});
  const std::string other = read_file(made("qwen2"));
  const std::string before = text(ask(server));
  Connection running(server.port());
  running.send(
      http_request("POST", "/v1/completions",
                   R"({"prompt": "a", "max_tokens": 8000, "ignore_eos": true, "stream": true})",
                   "Connection: close\r\n"));
  std::string streamed;
  // It has begun with the old model when its first token is here.
  while (streamed.find("data: {") == std::string::npos) {
    const std::string more = running.receive();
    ASSERT_FALSE(more.empty()) << streamed;
    streamed += more;
  }
  write_plan(other);
  for (std::string more = "-"; !more.empty(); streamed += more) more = running.receive();
  // Its end would be of another model.
  EXPECT_THAT(streamed, HasSubstr("the model's file was changed or cut off while it answered"));
  EXPECT_THAT(streamed, Not(HasSubstr("finish_reason\":\"length")));
  const std::string after = text(ask(server));
  const ServerProcess alone({made("qwen2"), "-t", "1"});
  EXPECT_EQ(after, text(ask(alone)));
  EXPECT_NE(after, before);
}

// Put in its place, the old file stays what it was.
TEST_F(ServeOperation, APlanThatIsReplacedByRenamingChangesNothing) {
  const ServerProcess server({plan(), "-t", "1"});
  const std::string before = text(ask(server));
  std::filesystem::copy_file(made("qwen2"), dir_.path("new"));
  std::filesystem::rename(dir_.path("new"), plan());
  EXPECT_EQ(text(ask(server)), before);
  std::filesystem::remove(plan());
  EXPECT_EQ(text(ask(server)), before);
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST_F(ServeOperation, OneOfSeveralPlansCostsNoOther) {
  std::filesystem::create_directory(dir_.path("models"));
  const std::string llama = dir_.path("models/llama.ktxplan");
  std::filesystem::copy_file(made("llama"), llama);
  std::filesystem::copy_file(made("qwen2"), dir_.path("models/qwen2.ktxplan"));
  const ServerProcess server({dir_.path("models"), "-t", "1"});
  const std::string before = text(ask(server, 8, "llama")), other = text(ask(server, 8, "qwen2"));
  std::filesystem::resize_file(llama, 100);
  EXPECT_GE(ask(server, 8, "llama").status, 500);
  EXPECT_EQ(text(ask(server, 8, "qwen2")), other);
  EXPECT_EQ(server.get("/health").status, 200);
  std::filesystem::copy_file(made("llama"), llama,
                             std::filesystem::copy_options::overwrite_existing);
  await([&] { return ask(server, 8, "llama").status == 200; });
  EXPECT_EQ(text(ask(server, 8, "llama")), before);
}

}  // namespace
}  // namespace ktx::testing
