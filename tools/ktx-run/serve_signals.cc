#include "tools/ktx-run/serve_signals.h"

#include <fmt/format.h>

#include <string_view>

#include "lib/server/server.h"
#include "lib/support/mapped_file.h"
#include "tools/ktx-run/report.h"

namespace ktx::tools {
namespace {

// Each file that others renew; one that cannot be read changes nothing.
void read_again(const ServeFlags& flags, server::Server& server) {
  bool any = false;
  const auto report = [&](const std::string& path, const Status& done, const std::string& what,
                          std::string_view kept) {
    any = true;
    note(done ? fmt::format("{}: {}", path, what)
              : fmt::format("{}; {}", done.error().message, kept));
  };
  if (!flags.api_key_file.empty()) {
    auto keys = read_keys(flags);
    const size_t count = keys ? keys->size() : 0;
    const Status read = keys ? Status() : Status(keys.error());
    if (keys) server.set_keys(keys.take());
    report(flags.api_key_file, read, fmt::format("read again, {} keys", count),
           "the keys stay as they were");
  }
  if (!flags.tls_cert.empty()) {
    report(flags.tls_cert, server.reload_certificate(), "read again",
           "the certificate stays as it was");
  }
  if (!flags.access_log.empty() && flags.access_log != "-") {
    report(flags.access_log, server.open_log(), "opened again", "the log stays as it was");
  }
  if (!any) {
    note("SIGHUP: there is no file to read again (--api-key-file, --tls-cert, --access-log)");
  }
}

}  // namespace

Result<std::vector<server::ApiKey>> read_keys(const ServeFlags& flags) {
  std::vector<server::ApiKey> keys(flags.api_keys.begin(), flags.api_keys.end());
  for (server::ApiKey& key : keys) key.edits_models = true;  // of the operator
  if (!flags.api_key_file.empty()) {
    const std::string text = KTX_TRY(read_text_file(flags.api_key_file));
    KTX_TRY(server::read_api_keys(flags.api_key_file, text, keys));
  }
  std::erase_if(keys, [](const server::ApiKey& key) { return key.key.empty(); });
  return keys;
}

ServeSignals::ServeSignals() {
  sigemptyset(&ending_);
  sigaddset(&ending_, SIGINT);
  sigaddset(&ending_, SIGTERM);
  all_ = ending_;
  sigaddset(&all_, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &all_, nullptr);
}

void ServeSignals::wait_for_end(const ServeFlags& flags, server::Server& server) const {
  for (;;) {
    int signal = 0;
    sigwait(&all_, &signal);
    if (signal != SIGHUP) return;
    read_again(flags, server);
  }
}

void ServeSignals::let_end() const {
  pthread_sigmask(SIG_UNBLOCK, &ending_, nullptr);
}

}  // namespace ktx::tools
