// LinksTcp.h: between finding one another (JoinTcp.cpp) and moving frames (LinksTcp.cpp).
#ifndef CINCH_RUNTIME_LINKSTCP_H
#define CINCH_RUNTIME_LINKSTCP_H
#include "runtime/Links.h"

namespace cinch::rt {

// The links that are open have a socket each.
void startTcpLinks();

} // namespace cinch::rt
#endif
