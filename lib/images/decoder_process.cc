#include "lib/images/decoder_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "lib/support/sandbox.h"
#include "lib/support/strings.h"

namespace ktx::images {
namespace {

constexpr int kSocket = 3;    // the helper's
constexpr int kSeconds = 30;  // of an image, by the clock; of the CPU likewise
// A progressive JPEG of the largest size takes 0.7 GB, with four inks.
constexpr rlim_t kMemoryBytes = 2u << 30;
constexpr uint32_t kLongestMessage = 512;

// Both sides are the same program.
struct Order {
  uint64_t bytes = 0;  // of the file that comes with it, beside the pipe
  ImageLimits limits;
  ImagePart part = ImagePart::All;
  uint32_t reserved = 0;
};
// An order on the socket, with two descriptors: the file, and the pipe for the answer.
struct OrderMessage {
  Order order;
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  iovec data = {&order, sizeof order};
  msghdr head = {};
  OrderMessage() {
    head.msg_iov = &data;
    head.msg_iovlen = 1;
    head.msg_control = control;
    head.msg_controllen = sizeof control;
  }
  OrderMessage(const OrderMessage&) = delete;  // its parts point to each other
  OrderMessage& operator=(const OrderMessage&) = delete;
};
struct Answer {
  int64_t width = 0, height = 0;  // 0: a message comes instead of pixels
  uint32_t message_bytes = 0;
  uint32_t reserved = 0;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kShadowMemory = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kShadowMemory = true;
#else
constexpr bool kShadowMemory = false;
#endif
#else
constexpr bool kShadowMemory = false;
#endif

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

Error failed(const char* what) {
  return Error{fmt::format("the decoder of images: {}: {}", what, std::strerror(errno))};
}

bool write_all(int fd, const void* data, size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t wrote = write(fd, at, size);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    at += wrote;
    size -= static_cast<size_t>(wrote);
  }
  return true;
}

void limit_process() {
  const rlimit none = {0, 0}, time = {kSeconds, kSeconds + 1},
               memory = {kMemoryBytes, kMemoryBytes};
  setrlimit(RLIMIT_CORE, &none);
  setrlimit(RLIMIT_FSIZE, &none);
  setrlimit(RLIMIT_CPU, &time);
  if (!kShadowMemory) setrlimit(RLIMIT_AS, &memory);
  alarm(kSeconds);
}

// The process of an image: from here on there is nothing but the bytes and the pipe.
// `confined`: the helper has found that a process can have no rights, so that this one must not
// go on with some.
[[noreturn]] void decode_one(const Order& order, int file, int pipe, bool confined) {
  limit_process();
  const size_t size = static_cast<size_t>(order.bytes);
  void* const mapped = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (mapped == MAP_FAILED) _exit(1);
  // A library that has been taken over writes no line of the log; a sanitizer says what it found.
  const int nothing = kShadowMemory ? -1 : open("/dev/null", O_WRONLY);
  if (nothing >= 0) dup2(nothing, STDERR_FILENO);
  if (nothing < 0 && !kShadowMemory) close(STDERR_FILENO);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, kSocket, file}) close(fd);
  if (nothing > STDERR_FILENO) close(nothing);
  if (const Status without_rights = restrict_to_computing(); !without_rights && confined) _exit(1);
  const Result<Image> image =
      decode_image({static_cast<const std::byte*>(mapped), size}, order.limits, order.part);
  Answer answer;
  bool sent = false;
  if (image) {
    answer.width = image->width;
    answer.height = image->height;
    sent = write_all(pipe, &answer, sizeof answer) &&
           write_all(pipe, image->rgb.data(), image->rgb.size());
  } else {
    const std::string& message = image.error().message;
    answer.message_bytes = static_cast<uint32_t>(std::min<size_t>(message.size(), kLongestMessage));
    sent = write_all(pipe, &answer, sizeof answer) &&
           write_all(pipe, message.data(), answer.message_bytes);
  }
  _exit(sent ? 0 : 1);
}

// With two descriptors; false: the other side is gone.
bool receive(Order& order, Descriptor& file, Descriptor& pipe) {
  OrderMessage message;
  ssize_t got = 0;
  while ((got = recvmsg(kSocket, &message.head, 0)) < 0 && errno == EINTR) {
  }
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message.head);
  if (got != static_cast<ssize_t>(sizeof message.order) || rights == nullptr ||
      rights->cmsg_len != CMSG_LEN(2 * sizeof(int))) {
    return false;
  }
  int fds[2];
  std::memcpy(fds, CMSG_DATA(rights), sizeof fds);
  order = message.order;
  file = Descriptor(fds[0]);
  pipe = Descriptor(fds[1]);
  return true;
}

// Tried once, in a process that ends: "" or why it cannot be had.
std::string try_confinement() {
  int ends[2];
  if (pipe(ends) != 0) return std::strerror(errno);
  const pid_t child = fork();
  if (child == 0) {
    const Status confined = restrict_to_computing();
    const std::string why = confined ? "" : confined.error().message;
    write_all(ends[1], why.data(), std::min<size_t>(why.size(), kLongestMessage));
    _exit(0);
  }
  close(ends[1]);
  char text[kLongestMessage];
  const ssize_t got = child < 0 ? -1 : ::read(ends[0], text, sizeof text);
  close(ends[0]);
  if (got < 0) return "no process can be made";
  return {text, static_cast<size_t>(got)};
}

// Reads what a process of an image says, until a moment.
class AnswerPipe {
 public:
  explicit AnswerPipe(int fd) : fd_(fd) {}

  Status read_all(void* data, size_t size) {
    auto* at = static_cast<char*>(data);
    while (size > 0) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now());
      pollfd waited = {fd_, POLLIN, 0};
      const int ready = left.count() <= 0 ? 0 : poll(&waited, 1, static_cast<int>(left.count()));
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) return Error{fmt::format("it takes more than {} s to decode", kSeconds)};
      const ssize_t got = ::read(fd_, at, size);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        return Error{
            "its decoder ended early; the image is damaged in a way that no decoder should mind, "
            "or takes too much memory or time"};
      }
      at += got;
      size -= static_cast<size_t>(got);
    }
    return {};
  }

 private:
  using Clock = std::chrono::steady_clock;
  const int fd_;
  const Clock::time_point end_ = Clock::now() + std::chrono::seconds(kSeconds + 2);
};

Result<Image> read_answer(int fd, const ImageLimits& limits, ImagePart part) {
  AnswerPipe pipe(fd);
  Answer answer;
  KTX_TRY(pipe.read_all(&answer, sizeof answer));
  if (answer.width == 0) {
    std::string message(std::min(answer.message_bytes, kLongestMessage), '\0');
    KTX_TRY(pipe.read_all(message.data(), message.size()));
    return Error{printable(message)};
  }
  KTX_TRY(check_size(answer.width, answer.height, limits));
  Image image{answer.width, answer.height, {}};
  if (part == ImagePart::Header) return image;
  image.rgb.resize(static_cast<size_t>(3 * answer.width * answer.height));
  KTX_TRY(pipe.read_all(image.rgb.data(), image.rgb.size()));
  return image;
}

// What the helper needs of the environment: where its libraries are, and how sanitizers are set.
// The rest may have secrets (KTX_SERVE_API_KEY), which decoders must not see.
std::vector<std::string> helper_environment() {
  std::vector<std::string> kept;
  const auto keep = [&](const char* name) {
    if (const char* value = std::getenv(name)) kept.push_back(fmt::format("{}={}", name, value));
  };
  keep("LD_LIBRARY_PATH");
  if (!kShadowMemory) return kept;
  for (const char* name : {"ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"}) {
    keep(name);
  }
  return kept;
}

// As posix_spawn takes them; `words` outlive the result.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// The bytes, as a file in memory.
Result<Descriptor> file_of(std::span<const std::byte> bytes) {
  Descriptor file(memfd_create("ktx image", MFD_CLOEXEC));
  if (file.get() < 0) return failed("no memory for a file");
  if (!write_all(file.get(), bytes.data(), bytes.size())) return failed("cannot pass on a file");
  return file;
}

}  // namespace

int serve_decoder() {
  syscall(SYS_close_range, kSocket + 1, ~0u, 0);
  signal(SIGCHLD, SIG_IGN);  // processes of images go as they end
  const std::string unconfined = try_confinement();
  if (send(kSocket, unconfined.data(), unconfined.size() + 1, MSG_NOSIGNAL) < 0) return 1;
  while (true) {
    Order order;
    Descriptor file, pipe;
    if (!receive(order, file, pipe)) return 0;
    if (fork() == 0) decode_one(order, file.get(), pipe.get(), unconfined.empty());
  }
}

Result<std::unique_ptr<DecoderProcess>> DecoderProcess::start(std::vector<std::string> command) {
  std::unique_ptr<DecoderProcess> process(new DecoderProcess(std::move(command)));
  KTX_TRY(process->start_helper());
  return process;
}

DecoderProcess::~DecoderProcess() {
  end_helper();
}

void DecoderProcess::end_helper() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

Status DecoderProcess::start_helper() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return failed("no socket");
  Descriptor other(ends[1]);
  socket_ = ends[0];
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, other.get(), kSocket);
  // It ends with this process, not by a key of the terminal while answers are still being given.
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> words = command_, settings = helper_environment();
  const std::vector<char*> argv = pointers_to(words), environment = pointers_to(settings);
  const int error =
      posix_spawn(&pid_, argv[0], &files, &attributes, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  other = Descriptor();  // so that the end of the helper is seen
  if (error != 0) {
    pid_ = -1;
    end_helper();
    return Error{fmt::format("the decoder of images cannot be started: {}: {}", command_[0],
                             std::strerror(error))};
  }
  // It says so when it is there.
  char text[kLongestMessage + 1] = {};
  const ssize_t got = recv(socket_, text, sizeof text - 1, 0);
  if (got <= 0) {
    end_helper();
    return Error{fmt::format("the decoder of images ({}) ended at its start", command_[0])};
  }
  unconfined_ = printable(text);
  return {};
}

// The pipe by which the answer comes.
Result<int> DecoderProcess::order(int file, uint64_t bytes, const ImageLimits& limits,
                                  ImagePart part) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed("no pipe");
  const Descriptor writes(ends[1]);
  Descriptor reads(ends[0]);
  OrderMessage message;
  message.order = {bytes, limits, part};
  cmsghdr* const rights = CMSG_FIRSTHDR(&message.head);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int fds[2] = {file, writes.get()};
  std::memcpy(CMSG_DATA(rights), fds, sizeof fds);
  const std::lock_guard lock(mutex_);
  for (const bool again : {true, false}) {
    ssize_t sent = -1;
    errno = ENOTCONN;
    while (socket_ >= 0 && (sent = sendmsg(socket_, &message.head, MSG_NOSIGNAL)) < 0 &&
           errno == EINTR) {
    }
    if (sent >= 0) return reads.release();
    const bool gone = errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN;
    if (!gone) return failed("cannot pass on an image");
    if (!again) break;
    end_helper();
    const Status started = start_helper();
    // In a sandbox no program can be started.
    if (!started) {
      return Error{fmt::format("{}; its process before has ended: start this program again",
                               started.error().message)};
    }
  }
  return failed("its process is gone");
}

Result<Image> DecoderProcess::decode(std::span<const std::byte> bytes, const ImageLimits& limits,
                                     ImagePart part) {
  if (bytes.empty() || bytes.size() > limits.bytes) return decode_image(bytes, limits, part);
  const Descriptor file = KTX_TRY(file_of(bytes));
  const Descriptor pipe(KTX_TRY(order(file.get(), bytes.size(), limits, part)));
  return read_answer(pipe.get(), limits, part);
}

}  // namespace ktx::images
