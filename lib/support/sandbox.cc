#include "lib/support/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef KTX_SECCOMP
#include <seccomp.h>
#endif

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>

namespace ktx {
namespace {

namespace fs = std::filesystem;

// linux/landlock.h of older distributions ends before the third version.
constexpr uint64_t kTruncate = 1ull << 14;

constexpr uint64_t kReadFile = LANDLOCK_ACCESS_FS_READ_FILE;
constexpr uint64_t kRead = kReadFile | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kWriteFile = LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
constexpr uint64_t kWrite = kWriteFile | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |
                            LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                            LANDLOCK_ACCESS_FS_REFER;
// With these, also what no path allows.
constexpr uint64_t kHandled = kRead | kWrite | LANDLOCK_ACCESS_FS_EXECUTE |
                              LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                              LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                              LANDLOCK_ACCESS_FS_MAKE_SYM;

// What libraries read: the C library, OpenSSL, the drivers of GPUs, MPI.
constexpr const char* kReadByAll[] = {"/usr",
                                      "/lib",
                                      "/lib64",
                                      "/opt",
                                      "/etc/ld.so.cache",
                                      "/etc/localtime",
                                      "/etc/ssl",
                                      "/etc/nsswitch.conf",
                                      "/proc",
                                      "/sys",
                                      "/dev/urandom"};
constexpr const char* kWrittenByAll[] = {"/dev/null", "/dev/zero", "/dev/full",
                                         "/dev/tty",  "/dev/shm",  "/proc/self"};

Error failed(const std::string& what) {
  return Error{fmt::format("--sandbox: {}: {}", what, std::strerror(errno))};
}

uint64_t rights_of_version(long version) {
  uint64_t rights = kHandled;
  if (version < 3) rights &= ~kTruncate;
  if (version < 2) rights &= ~uint64_t{LANDLOCK_ACCESS_FS_REFER};
  return rights;
}

Status allow(int ruleset, const std::string& path, uint64_t rights) {
  const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return {};
  struct stat info = {};
  if (fstat(fd, &info) == 0 && !S_ISDIR(info.st_mode)) rights &= kReadFile | kWriteFile;
  landlock_path_beneath_attr rule = {};
  rule.allowed_access = rights;
  rule.parent_fd = fd;
  const long added = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  const Status status = added == 0 ? Status() : failed(path);
  close(fd);
  return status;
}

Status allow_all(int ruleset, const SandboxPaths& paths, uint64_t handled) {
  const uint64_t read = kRead & handled, write = (kRead | kWrite) & handled;
  for (const char* path : kReadByAll) KTX_TRY(allow(ruleset, path, read));
  for (const char* path : kWrittenByAll) KTX_TRY(allow(ruleset, path, write));
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("nvidia")) KTX_TRY(allow(ruleset, entry.path().string(), write));
  }
  for (const std::string& path : paths.read) KTX_TRY(allow(ruleset, path, read));
  for (const std::string& path : paths.write) KTX_TRY(allow(ruleset, path, write));
  return {};
}

}  // namespace

void add_folders_of(const std::string& file, std::vector<std::string>& folders) {
  if (file.empty()) return;
  std::error_code error;
  const fs::path absolute = fs::absolute(file, error);
  folders.push_back(absolute.parent_path().string());
  const fs::path target = fs::canonical(absolute, error);
  if (!error && target != absolute) folders.push_back(target.parent_path().string());
}

Status restrict_files(const SandboxPaths& paths) {
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) {
    return Error{fmt::format(
        "--sandbox: this kernel has no Landlock ({}); start without it, or a kernel of Linux 5.13 "
        "or newer that lists landlock in /sys/kernel/security/lsm",
        std::strerror(errno))};
  }
#ifndef KTX_SECCOMP
  return Error{"--sandbox: this build is without libseccomp; build ktx where libseccomp-dev is"};
#endif
  landlock_ruleset_attr attr = {};
  attr.handled_access_fs = rights_of_version(version);
  const int ruleset = static_cast<int>(syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0));
  if (ruleset < 0) return failed("cannot make rules for files");
  Status status = allow_all(ruleset, paths, attr.handled_access_fs);
  if (status && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) status = failed("no new privileges");
  if (status && syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) {
    status = failed("cannot restrict files");
  }
  close(ruleset);
  return status;
}

#ifdef KTX_SECCOMP
namespace {

// `usual` for calls that are not in the list, `listed` for those that are.
Status filter_calls(std::span<const char* const> calls, uint32_t usual, uint32_t listed) {
  const std::unique_ptr<void, void (*)(scmp_filter_ctx)> filter(seccomp_init(usual),
                                                                seccomp_release);
  if (!filter) return Error{"--sandbox: libseccomp makes no filter on this machine"};
  int error = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1);
  for (const char* name : calls) {
    const int call = seccomp_syscall_resolve_name(name);
    if (call == __NR_SCMP_ERROR || error != 0) continue;
    error = seccomp_rule_add(filter.get(), listed, call, 0);
  }
  if (error == 0) error = seccomp_load(filter.get());
  if (error == 0) return {};
  return Error{fmt::format("--sandbox: this kernel takes no seccomp filter: {}",
                           std::strerror(error < 0 ? -error : error))};
}

}  // namespace

Status restrict_calls() {
  constexpr const char* kCalls[] = {
#define KTX_FORBIDDEN_CALL(name) #name,
#include "lib/support/sandbox_calls.def"
  };
  return filter_calls(kCalls, SCMP_ACT_ALLOW, SCMP_ACT_ERRNO(EPERM));
}

Status restrict_to_computing() {
  constexpr const char* kCalls[] = {
#define KTX_COMPUTING_CALL(name) #name,
#include "lib/support/computing_calls.def"
  };
  return filter_calls(kCalls, SCMP_ACT_ERRNO(EPERM), SCMP_ACT_ALLOW);
}
#else
namespace {

Error no_seccomp() {
  return Error{"--sandbox: this build is without libseccomp; build ktx where libseccomp-dev is"};
}

}  // namespace

Status restrict_calls() {
  return no_seccomp();
}
Status restrict_to_computing() {
  return no_seccomp();
}
#endif

}  // namespace ktx
