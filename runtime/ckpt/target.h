/* Can something be written there? Asked before training, when an answer still costs nothing. */
#ifndef FT_RUNTIME_CKPT_TARGET_H
#define FT_RUNTIME_CKPT_TARGET_H

#include "base/err.h"

/* Makes and removes a folder in dir, or in the nearest folder above it that exists: permissions, read-only and full file systems, quotas
 * and whatever else the system says no to. The error names that folder; FT_IO. */
enum ft_code ft_target_check(const char *dir, struct ft_err *err) FT_MUST_CHECK;

#endif
