/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that attacks the tracer: it changes the size of every large nameless file that its
 * parent, or it itself, holds open, which /proc lets it open. Writes how many there were, and in how
 * many the attack succeeded.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int found, changed;

static void attack(const char *path)
{
   struct stat file;
   if (stat(path, &file) != 0 || !S_ISREG(file.st_mode) || file.st_nlink != 0
       || file.st_size < 1 << 20)
      return;
   int fd = open(path, O_RDWR);
   if (fd < 0)
      return;
   found++;
   changed += ftruncate(fd, 0) == 0 || ftruncate(fd, 2 * file.st_size) == 0;
   close(fd);
}

static void attack_files_of(const char *process)
{
   char path[512];
   snprintf(path, sizeof path, "/proc/%s/fd", process);
   DIR *directory = opendir(path);
   for (struct dirent *entry; directory && (entry = readdir(directory));) {
      snprintf(path, sizeof path, "/proc/%s/fd/%s", process, entry->d_name);
      attack(path);
   }
}

int main(void)
{
   char parent[16];
   snprintf(parent, sizeof parent, "%d", (int)getppid());
   attack_files_of(parent);
   attack_files_of("self");
   printf("%d found, %d changed\n", found, changed);
   return 0;
}
