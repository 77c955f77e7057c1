/* hot.h - marks the functions that every decision runs.
 *
 * Those are laid side by side in a program, whichever files they come from.  A decision is a small
 * part of what a request costs its process: by its turn, the caches have seen a kernel and an nginx
 * since.  So it counts how much memory there is to fetch, and of the code it is then 5 pages and
 * not 17.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_HOT_H
#define WEIR_BASE_HOT_H

#define WEIR_HOT __attribute__((hot))

#endif
