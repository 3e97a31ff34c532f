// What a sandbox forbids fails inside, and what it allows works. Each case is a process of its own:
// a sandbox cannot be left.
#include "lib/support/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "tests/support/temp_dir.h"

namespace ktx {
namespace {

using ktx::testing::TempDir;

constexpr int kNoSandbox = 99;  // this kernel, or this build, has none

// The status of a child that does this; its messages are on stderr.
int status_of(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    const int status = body();
    std::fflush(stderr);
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int refused(const char* what, bool right) {
  if (!right) std::fprintf(stderr, "%s: errno %d\n", what, errno);
  return right ? 0 : 1;
}

bool opens(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

#define SKIP_WITHOUT_SANDBOX(status) \
  if ((status) == kNoSandbox) GTEST_SKIP() << "no Landlock or no libseccomp here"

TEST(Sandbox, AllowsTheNamedFilesAlone) {
  const TempDir read, write, other;
  read.write("model", "x");
  other.write("secret", "x");
  const int status = status_of([&] {
    if (!restrict_files({.read = {read.path()}, .write = {write.path()}})) return kNoSandbox;
    int wrong = 0;
    wrong += refused("read", opens(read.path("model"), O_RDONLY));
    wrong += refused("write", opens(write.path("new"), O_WRONLY | O_CREAT));
    wrong += refused("rename", rename(write.path("new").c_str(), write.path("newer").c_str()) == 0);
    wrong += refused("remove", unlink(write.path("newer").c_str()) == 0);
    wrong += refused("libraries", opens("/proc/self/maps", O_RDONLY));
    errno = 0;
    wrong += refused("read another", !opens(other.path("secret"), O_RDONLY) && errno == EACCES);
    wrong += refused("write what is read", !opens(read.path("model"), O_WRONLY) && errno == EACCES);
    wrong += refused("make what is read",
                     !opens(read.path("new"), O_WRONLY | O_CREAT) && errno == EACCES);
    wrong += refused("passwords", !opens("/etc/shadow", O_RDONLY));
    wrong += refused("a link", symlink("x", write.path("link").c_str()) != 0 && errno == EACCES);
    char program[] = "/bin/true";
    char* const argv[] = {program, nullptr};
    execv(program, argv);
    wrong += refused("programs", errno == EACCES);
    return wrong;
  });
  SKIP_WITHOUT_SANDBOX(status);
  EXPECT_EQ(status, 0);
}

TEST(Sandbox, ForbidsCallsOfAllThreads) {
  const int status = status_of([] {
    const int listening = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 1;
    if (listen(listening, 1) != 0) return 1;
    std::atomic<bool> restricted = false;
    int wrong_elsewhere = 0;
    std::thread before([&] {
      while (!restricted) std::this_thread::yield();
      wrong_elsewhere = refused("socket of another thread",
                                socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM);
    });
    const Status status = restrict_calls();
    restricted = true;
    before.join();
    if (!status) return kNoSandbox;
    int wrong = wrong_elsewhere;
    wrong += refused("socket", socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM);
    wrong += refused(
        "connect", connect(listening, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 &&
                       errno == EPERM);
    wrong += refused("listen", listen(listening, 1) != 0 && errno == EPERM);
    char program[] = "/bin/true";
    char* const argv[] = {program, nullptr};
    execv(program, argv);
    wrong += refused("programs", errno == EPERM);
    // What is open is of use, and threads and memory are there.
    wrong += refused("accept", fcntl(listening, F_SETFL, O_NONBLOCK) == 0 &&
                                   accept(listening, nullptr, nullptr) < 0 && errno == EAGAIN);
    std::thread([] {}).join();
    return wrong;
  });
  SKIP_WITHOUT_SANDBOX(status);
  EXPECT_EQ(status, 0);
}

TEST(Sandbox, KnowsTheFolderOfALinksFile) {
  const TempDir blobs, models;
  blobs.write("abc", "x");
  ASSERT_EQ(symlink(blobs.path("abc").c_str(), models.path("m.gguf").c_str()), 0);
  std::vector<std::string> folders;
  add_folders_of(models.path("m.gguf"), folders);
  EXPECT_EQ(folders, (std::vector<std::string>{models.path(), blobs.path()}));
}

TEST(Sandbox, LeavesComputingAlone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int status = status_of([&] {
    if (!restrict_to_computing()) return kNoSandbox;
    std::vector<char> memory(64 << 20, 'x');
    if (write(ends[1], memory.data(), 3) != 3) return refused("write", false);
    if (opens("/dev/null", O_RDONLY)) return refused("open", false);
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != EPERM) return refused("socket", false);
    if (fork() >= 0 || errno != EPERM) return refused("fork", false);
    if (kill(getppid(), 0) == 0) return refused("kill", false);
    return 0;
  });
  SKIP_WITHOUT_SANDBOX(status);
  EXPECT_EQ(status, 0);
  char text[4] = {};
  EXPECT_EQ(read(ends[0], text, 3), 3);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace ktx
