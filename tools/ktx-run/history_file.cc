#include "tools/ktx-run/history_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "lib/support/output_place.h"
#include "lib/support/write_failure.h"
#include "lib/support/write_file.h"

namespace ktx::tools {
namespace {

constexpr const char* kMagic = "_HiStOrY_V2_";  // libedit's

// As libedit writes it: to a file in memory, for it asks for the file's number.
Result<std::string> text_of(History* history) {
  const auto failed = [] { return Error{"cannot write the history: " + write_failure(errno)}; };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> memory(
      fdopen(memfd_create("history", MFD_CLOEXEC), "w+"), &std::fclose);
  HistEvent event;
  if (!memory || ::history(history, &event, H_SAVE_FP, memory.get()) < 0) return failed();
  std::string text;
  std::rewind(memory.get());
  for (int c = std::getc(memory.get()); c != EOF; c = std::getc(memory.get())) {
    text += static_cast<char>(c);
  }
  return text;
}

}  // namespace

void load_history(History* history, const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  HistEvent event;
  ::history(history, &event, H_LOAD, path.c_str());
}

Status save_history(History* history, const std::string& path) {
  if (KTX_TRY(find_output(path)).kind == OutputPlace::Kind::Stream) return {};
  return replace_file(path, kMagic, KTX_TRY(text_of(history)), 0600);
}

}  // namespace ktx::tools
