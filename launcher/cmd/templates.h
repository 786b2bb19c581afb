/* Files of templates/job, embedded at build time (cmake/FtEmbed.cmake). */
#ifndef FT_LAUNCHER_CMD_TEMPLATES_H
#define FT_LAUNCHER_CMD_TEMPLATES_H

extern const char ft_template_laptop[], ft_template_ssh[], ft_template_slurm[];

#endif
