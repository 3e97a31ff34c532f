// A server under test, and requests to it as bytes on a socket: a test's bytes reach the server
// unchanged, valid or not.
//
//   ServerProcess server({plan, "--max-batch", "4"});
//   const HttpAnswer answer = server.post("/v1/chat/completions", R"({"messages": ...})");
//   EXPECT_EQ(answer.status, 200) << answer.body;
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/run_program.h"

namespace ktx::testing {

struct HttpAnswer {
  int status = 0;                              // 0: the connection ended without one
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without chunk framing
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  // The events of a stream: "data: {...}" lines, or lines of JSON.
  std::vector<nlohmann::json> events() const {
    std::vector<nlohmann::json> list;
    for (size_t at = 0; at < body.size();) {
      const size_t end = std::min(body.find('\n', at), body.size());
      std::string line = body.substr(at, end - at);
      at = end + 1;
      if (line.rfind("data: ", 0) == 0) line.erase(0, 6);
      if (!line.empty() && line[0] == '{')
        list.push_back(nlohmann::json::parse(line, nullptr, false));
    }
    return list;
  }
};

class Connection {
 public:
  explicit Connection(int port) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
    timeval limit = {120, 0};  // as long as a busy machine may need
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  Connection(Connection&& other) noexcept : fd_(std::exchange(other.fd_, -1)), held_(other.held_) {}
  ~Connection() { close(); }

  bool connected() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // False when the server does not take it any more.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Some bytes; "" at the end.
  std::string receive() {
    char buffer[65536];
    ssize_t got;
    do {  // who was stopped for a while is interrupted
      got = ::recv(fd_, buffer, sizeof buffer, 0);
    } while (got < 0 && errno == EINTR);
    return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : "";
  }

  HttpAnswer answer() {
    HttpAnswer out;
    const std::string head = until("\r\n\r\n");
    if (head.size() < 12) return out;
    out.status = std::atoi(head.c_str() + 9);
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      const size_t end = head.find("\r\n", at);
      const size_t colon = head.find(": ", at);
      if (end == std::string::npos || end == at) break;
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      out.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    if (out.headers.count("content-length")) {
      out.body = take(std::stoul(out.headers["content-length"]));
    } else if (out.headers["transfer-encoding"] == "chunked") {
      for (;;) {
        const size_t size = std::strtoul(until("\r\n").c_str(), nullptr, 16);
        out.body += take(size);
        take(2);
        if (size == 0) break;
      }
    }
    return out;
  }

 private:
  std::string until(const std::string& mark) {
    size_t at;
    while ((at = held_.find(mark)) == std::string::npos) {
      const std::string more = receive();
      if (more.empty()) return std::exchange(held_, "");
      held_ += more;
    }
    return take(at + mark.size());
  }
  std::string take(size_t size) {
    while (held_.size() < size) {
      const std::string more = receive();
      if (more.empty()) break;
      held_ += more;
    }
    const std::string out = held_.substr(0, size);
    held_.erase(0, out.size());
    return out;
  }

  int fd_ = -1;
  std::string held_;
};

inline std::string http_request(const std::string& method, const std::string& path,
                                const std::string& body = "", const std::string& headers = "") {
  std::string text = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers;
  if (!body.empty() || method == "POST") {
    text +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  return text + "\r\n" + body;
}

// Looks every 10 ms until it has happened, however long a busy machine takes: what hangs is ended
// by tools/dev/run-tests.
template <class F>
void await(const F& happened) {
  while (!happened()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// ktx-run serve on a free port, ready to answer. `launcher` is a command in front of it (mpirun).
class ServerProcess {
 public:
  explicit ServerProcess(const std::vector<std::string>& args,
                         std::vector<std::string> launcher = {}) {
    const std::string log = dir_.path("log");
    std::vector<std::string> command = std::move(launcher);
    command.insert(command.end(), {ktx_run(), "serve", "--port=0"});
    command.insert(command.end(), args.begin(), args.end());
    pid_ = fork();
    if (pid_ == 0) {
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT, 0600);
      dup2(fd, STDERR_FILENO);
      std::vector<char*> argv;
      for (const std::string& arg : command) argv.push_back(strdup(arg.c_str()));
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    while (true) {
      const std::string text = this->log();
      const size_t at = text.find("listening on ");
      if (at != std::string::npos && text.find("is ready") != std::string::npos) {
        port_ = std::atoi(text.c_str() + text.find(':', at + 20) + 1);
        return;
      }
      if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
        pid_ = -1;
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "the server did not start: " << this->log();
  }
  ~ServerProcess() { stop(SIGKILL); }

  int port() const { return port_; }
  pid_t pid() const { return pid_; }
  std::string log() const { return read_file(dir_.path("log")); }
  // The exit status; 128 + signal when a signal ended it.
  int stop(int signal) {
    if (pid_ <= 0) return -1;
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  HttpAnswer send(const std::string& bytes) const {
    Connection connection(port_);
    connection.send(bytes);
    return connection.answer();
  }
  HttpAnswer get(const std::string& path, const std::string& headers = "") const {
    return send(http_request("GET", path, "", headers));
  }
  HttpAnswer post(const std::string& path, const std::string& body,
                  const std::string& headers = "") const {
    return send(http_request("POST", path, body, headers));
  }
  double metric(const std::string& name) const { return get("/stats").json().value(name, -1.0); }
  // Waits until it is that much.
  void await_metric(const std::string& name, double least) const {
    double value = 0;
    await([&] { return (value = metric(name)) >= least; });
    EXPECT_GE(value, least) << name;
  }

 private:
  TempDir dir_;
  pid_t pid_ = -1;
  int port_ = 0;
};

}  // namespace ktx::testing
