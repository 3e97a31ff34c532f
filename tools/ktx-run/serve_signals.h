// The signals of a server, which one thread waits for.
//
//   SIGINT, SIGTERM   end it; a second one ends it at once
//   SIGHUP            reads again what others renew: keys, certificate, access log. Never ends it.
//
//   ServeSignals signals;                        // before any thread is started
//   signals.wait_for_end(flags, server);
//   signals.let_end();                           // from here on the next one ends the process
#pragma once

#include <signal.h>

#include <vector>

#include "lib/server/api_keys.h"
#include "lib/support/result.h"
#include "tools/ktx-run/options.h"

namespace ktx::server {
class Server;
}

namespace ktx::tools {

class ServeSignals {
 public:
  ServeSignals();
  void wait_for_end(const ServeFlags& flags, server::Server& server) const;
  void let_end() const;

 private:
  sigset_t ending_, all_;
};

// Those of the command line and of the file, as it is now.
Result<std::vector<server::ApiKey>> read_keys(const ServeFlags& flags);

}  // namespace ktx::tools
